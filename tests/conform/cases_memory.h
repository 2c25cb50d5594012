/* tests/conform/cases_memory.h - rows of the cases about memory: X(name, flags). */
#ifndef CONFORM_CASES_MEMORY_H
#define CONFORM_CASES_MEMORY_H

/* clang-format off */
#define CONFORM_CASES_MEMORY(X) \
    /* case_alloc.c */ \
    X(alloc_is_written_and_read_by_kernels, 0) \
    X(alloc_of_size_zero_is_refused, 0) \
    X(alloc_without_output_is_refused, 0) \
    X(alloc_of_any_size_is_aligned_to_256, 0) \
    X(alloc_takes_and_free_gives_memory, 0) \
    X(free_of_null_does_nothing, 0) \
    X(free_of_interior_is_refused, 0) \
    X(free_twice_is_refused, 0) \
    X(free_of_foreign_address_is_refused, 0) \
    X(free_of_virtual_memory_is_refused, VMM) \
    X(free_of_pinned_host_memory_is_refused, 0) \
    X(free_memory_is_within_the_device, 0) \
    X(free_memory_takes_missing_outputs, 0) \
    X(address_range_of_interior_is_the_allocation, 0) \
    X(address_range_of_small_allocation_is_its_size, 0) \
    X(address_range_takes_missing_outputs, 0) \
    X(address_range_of_nothing_is_refused, 0) \
    X(address_range_of_virtual_memory_is_the_mapping, VMM) \
    X(attributes_of_allocation, 0) \
    X(attributes_of_virtual_memory, VMM) \
    X(attributes_of_reservation_are_refused, VMM) \
    X(attributes_of_mapping_without_access, VMM) \
    X(attributes_of_host_virtual_memory, NUMA) \
    X(attributes_of_pinned_host_memory, 0) \
    X(attributes_of_managed_memory, 0) \
    X(attributes_of_foreign_memory_are_refused, 0) \
    X(attributes_of_freed_memory_are_refused, 0) \
    X(attributes_of_unknown_name_are_refused, 0) \
    X(attributes_tell_buffers_apart, 0) \
    /* case_rows.c */ \
    X(pitch_is_a_multiple_of_512_and_holds_the_row, 0) \
    X(pitch_is_what_the_alignment_of_textures_says, 0) \
    X(pitch_for_elements_of_other_sizes_is_refused, 0) \
    X(pitch_of_nothing_is_refused, 0) \
    X(pitch_beyond_the_largest_is_given, 0) \
    X(pitch_of_more_than_the_device_is_out_of_memory, 0) \
    X(pitch_without_a_context_is_refused, BARE) \
    X(pitch_memory_is_one_allocation, 0) \
    X(rows_are_copied_there_and_back, 0) \
    X(rows_are_copied_from_an_offset_to_an_offset, 0) \
    X(rows_are_copied_within_the_device, 0) \
    X(rows_are_found_by_their_address, 0) \
    X(rows_of_any_pitch_are_copied_unaligned, 0) \
    X(rows_are_copied_in_stream_order, 0) \
    X(rows_of_pageable_memory_may_change_at_once, 0) \
    X(rows_without_bytes_are_no_work, 0) \
    X(rows_wider_than_their_pitch_are_refused, 0) \
    X(rows_with_a_pitch_of_zero_succeed, 0) \
    X(rows_beyond_the_allocation_are_refused, 0) \
    X(rows_of_an_unknown_kind_of_memory_are_refused, 0) \
    X(rows_cross_adjacent_mappings, VMM) \
    X(rows_of_read_only_memory_are_not_written, VMM) \
    X(rows_are_set_in_units_of_each_width, 0) \
    X(rows_are_set_in_stream_order, 0) \
    X(rows_at_unaligned_addresses_are_not_set, 0) \
    X(set_of_wider_units_needs_no_stream, 0) \
    /* case_reserve.c */ \
    X(reserve_then_free_succeeds, VMM) \
    X(reserve_takes_no_device_memory, VMM) \
    X(reserve_of_size_zero_is_refused, 0) \
    X(reserve_without_output_is_refused, VMM) \
    X(reserve_of_unaligned_size_is_refused, VMM) \
    X(reserve_of_host_pages_is_refused, VMM) \
    X(reserve_with_unknown_flags_is_refused, VMM) \
    X(reserve_with_odd_alignment_is_refused, VMM) \
    X(reserve_with_alignment_is_aligned, VMM) \
    X(reserve_at_wanted_address_gets_it, VMM) \
    X(reserve_of_32_mib_at_wanted_address_gets_it, VMM) \
    X(reserve_at_occupied_address_goes_elsewhere, VMM) \
    X(reserve_at_unaligned_address_is_refused, VMM) \
    X(reserve_many_do_not_overlap, VMM) \
    X(reserve_of_4_tib_succeeds, VMM) \
    X(reserve_of_64_tib_succeeds, VMM) \
    X(reserve_of_48_tib_at_32_tib_gets_it_and_maps_in_it, VMM) \
    X(reserve_of_more_than_addresses_is_refused, VMM) \
    X(reserve_at_the_ends_of_a_large_range_maps, VMM) \
    X(address_free_of_other_size_is_refused, VMM) \
    X(address_free_of_interior_is_refused, VMM) \
    X(address_free_twice_is_refused, VMM) \
    X(address_free_of_foreign_memory_is_refused, VMM) \
    X(address_free_of_mapped_range_is_refused, VMM) \
    /* case_create.c */ \
    X(granularity_is_2_mib, VMM) \
    X(granularity_without_handle_type_is_2_mib, VMM) \
    X(granularity_of_host_memory_is_2_mib, NUMA) \
    X(granularity_of_nonsense_is_refused, VMM) \
    X(granularity_does_not_look_at_the_location, VMM) \
    X(vmm_create_takes_and_release_gives_memory, VMM) \
    X(vmm_create_after_release_gives_zeros, VMM) \
    X(vmm_create_of_size_zero_is_refused, VMM) \
    X(vmm_create_of_unaligned_size_is_refused, VMM) \
    X(vmm_create_of_odd_granules_succeeds, VMM) \
    X(vmm_create_without_output_is_refused, VMM) \
    X(vmm_create_without_properties_is_refused, VMM) \
    X(vmm_create_with_unknown_flags_is_refused, VMM) \
    X(vmm_create_of_invalid_type_is_refused, VMM) \
    X(vmm_create_of_managed_type_is_refused, VMM) \
    X(vmm_create_at_invalid_location_is_refused, VMM) \
    X(vmm_create_on_missing_device_is_refused, VMM) \
    X(vmm_create_for_win32_is_refused, VMM) \
    X(vmm_create_for_rdma_is_told_by_the_handle, VMM) \
    X(vmm_create_for_rdma_of_another_value_succeeds, VMM) \
    X(vmm_create_for_rdma_is_shared_as_any_other, VMM) \
    X(vmm_create_for_rdma_of_host_memory_is_refused, NUMA) \
    X(vmm_create_for_fabric, VMM) \
    X(vmm_create_at_host_location_works_without_fd_only, VMM) \
    X(vmm_create_at_current_numa_node_is_refused, NUMA) \
    X(vmm_create_at_missing_numa_node_is_refused, NUMA) \
    X(vmm_create_of_host_memory_takes_no_device_memory, NUMA) \
    X(vmm_create_gives_different_handles, VMM) \
    X(vmm_create_256_handles_counts_each, VMM) \
    X(vmm_release_of_null_is_refused, ALONE) \
    X(properties_of_device_handle_are_those_asked_for, VMM) \
    X(properties_of_handle_without_fd_are_those_asked_for, VMM) \
    X(properties_of_host_handle_are_those_asked_for, NUMA) \
    X(properties_of_imported_handle_have_no_handle_type, VMM) \
    X(properties_of_imported_host_handle_have_no_handle_type, NUMA) \
    X(properties_without_output_are_refused, VMM) \
    X(retain_of_mapped_address_gives_the_handle, VMM) \
    X(retain_keeps_memory_after_release_and_unmap, VMM) \
    X(retain_of_unmapped_address_is_refused, VMM) \
    X(retain_of_plain_allocation_is_refused, VMM) \
    /* case_map.c */ \
    X(map_of_new_handle_is_written_and_read_by_kernels, VMM) \
    X(map_takes_no_more_memory, VMM) \
    X(map_at_mapped_address_is_refused, VMM) \
    X(map_over_part_of_a_mapping_is_refused, VMM) \
    X(map_with_offset_is_not_supported, VMM) \
    X(map_of_another_size_than_the_handles_is_not_supported, VMM) \
    X(map_of_size_zero_is_refused, VMM) \
    X(map_at_unaligned_address_is_refused, VMM) \
    X(map_with_unknown_flags_is_refused, VMM) \
    X(map_beyond_the_reservation, ALONE | VMM) \
    X(map_outside_any_reservation_is_refused, VMM) \
    X(map_over_plain_allocation_is_refused, VMM) \
    X(map_survives_release_of_its_handle, VMM) \
    X(map_twice_shows_the_same_memory, VMM) \
    X(map_twice_with_different_access, VMM) \
    X(map_of_another_handle_after_unmap_changes_the_content, VMM) \
    X(map_content_survives_unmap_and_map_elsewhere, VMM) \
    X(map_with_holes_works_around_them, VMM) \
    X(map_of_neighbours_reads_as_one_array, VMM) \
    X(unmap_of_part_of_a_handle_is_refused, VMM) \
    X(unmap_twice_succeeds, VMM) \
    X(unmap_of_never_mapped_succeeds, VMM) \
    X(unmap_outside_any_reservation_is_refused, VMM) \
    X(unmap_of_nonsense_is_refused, VMM) \
    X(unmap_beyond_the_reservation, ALONE | VMM) \
    X(unmap_of_plain_allocation_is_refused, VMM) \
    X(unmap_once_of_many_handles_succeeds, VMM) \
    X(unmap_of_some_of_many_handles_keeps_the_others, VMM) \
    X(unmap_over_a_hole_succeeds, VMM) \
    X(unmap_cutting_the_last_handle_is_refused, VMM) \
    X(map_of_device_then_host_then_device_keeps_the_address, NUMA) \
    X(map_of_device_and_host_neighbours_reads_as_one_array, NUMA) \
    X(copy_over_the_seam_of_device_and_host_memory_works, NUMA) \
    /* case_access.c */ \
    X(access_of_new_mapping_is_none, VMM) \
    X(access_set_is_what_is_asked_back, VMM) \
    X(access_none_takes_it_away, VMM) \
    X(access_read_only_in_place_keeps_content_readable, VMM) \
    X(access_read_only_then_writable_again, VMM) \
    X(access_of_unmapped_range_is_refused, VMM) \
    X(access_of_range_that_ends_in_a_hole_is_refused, VMM) \
    X(access_over_a_hole_stops_there, VMM) \
    X(access_of_part_of_a_handle_is_refused, VMM) \
    X(access_of_many_handles_at_once, VMM) \
    X(access_of_neighbours_may_differ, VMM) \
    X(access_is_gone_after_unmap_and_map, VMM) \
    X(access_without_descriptor_is_refused, VMM) \
    X(access_of_nonsense_range_is_refused, VMM) \
    X(access_with_unknown_right_is_refused, VMM) \
    X(access_for_missing_device_is_refused, VMM) \
    X(access_for_invalid_location_is_refused, VMM) \
    X(access_of_plain_allocation_is_refused, VMM) \
    X(access_of_cpu_to_device_memory_is_not_supported, VMM) \
    X(access_asked_of_cpu_to_device_memory_is_none, VMM) \
    X(access_asked_of_unmapped_address_is_refused, VMM) \
    X(access_asked_of_plain_allocation_is_none, VMM) \
    X(access_asked_without_output_is_refused, VMM) \
    X(access_twice_for_one_device_means_the_last, VMM) \
    X(access_of_second_device_is_granted_by_set, PAIR | VMM) \
    X(access_of_second_device_is_none_by_default, PAIR | VMM) \
    X(access_of_second_device_may_write, PAIR | VMM) \
    /* case_share.c */ \
    X(export_gives_a_new_fd_each_time, VMM) \
    X(export_of_handle_without_fd_type_is_refused, VMM) \
    X(export_as_another_type_is_refused, VMM) \
    X(export_with_unknown_flags_is_refused, VMM) \
    X(export_without_output_is_refused, VMM) \
    X(export_keeps_memory_after_release, VMM) \
    X(export_closed_gives_memory_back, VMM) \
    X(import_in_the_same_process_shows_the_same_memory, VMM) \
    X(import_twice_shows_the_same_memory, VMM) \
    X(import_takes_no_more_memory, VMM) \
    X(import_leaves_the_fd_to_the_caller, VMM) \
    X(import_exported_again_is_refused, VMM) \
    X(import_mapped_with_another_size_is_not_supported, VMM) \
    X(import_read_only_reads, VMM) \
    X(import_of_closed_fd_is_refused, ALONE | VMM) \
    X(import_of_device_null_is_refused, ALONE) \
    X(import_of_pipe_is_refused, ALONE) \
    X(import_of_regular_file_is_refused, ALONE | VMM) \
    X(import_as_another_type_is_refused, VMM) \
    X(import_without_output_is_refused, VMM) \
    X(share_gives_a_peer_the_same_sum, VMM) \
    X(share_shows_writes_both_ways, VMM) \
    X(share_read_only_reads, VMM) \
    X(share_at_the_exporters_address, VMM) \
    X(share_of_64_handles_keeps_their_order, VMM) \
    X(share_between_two_peers, VMM) \
    X(share_outlives_the_owners_release, VMM) \
    X(share_outlives_the_importers_release, VMM) \
    X(share_of_killed_importer_comes_back, VMM) \
    X(share_outlives_its_killed_owner, VMM) \
    X(share_from_a_broker_without_context, VMM) \
    X(share_through_a_broker_that_exports_what_it_imported_is_refused, VMM) \
    X(share_of_memory_held_by_a_broker_alone, VMM) \
    X(share_without_fd_in_a_peer_is_refused, 0) \
    X(bare_create_export_import_release_succeed, BARE | VMM) \
    X(bare_reserve_map_and_set_access_succeed, BARE | VMM) \
    X(bare_host_memory_is_created_and_shared, BARE | NUMA) \
    X(bare_plain_allocation_is_refused, BARE) \
    /* case_ipc.c */ \
    X(ipc_opened_by_a_peer_gives_the_same_sum, 0) \
    X(ipc_shows_writes_both_ways, 0) \
    X(ipc_of_a_peers_memory_opens_here, 0) \
    X(ipc_of_small_allocations_is_each_its_own, 0) \
    X(ipc_of_interior_address_opens_at_the_base, 0) \
    X(ipc_of_virtual_memory_is_refused, VMM) \
    X(ipc_of_foreign_memory_is_refused, 0) \
    X(ipc_of_pinned_host_memory_is_refused, 0) \
    X(ipc_of_stream_ordered_memory_is_refused, 0) \
    X(ipc_opened_in_the_same_process_is_refused, 0) \
    X(ipc_of_garbage_is_refused, ALONE) \
    X(ipc_handle_of_freed_memory_is_refused, 0) \
    X(ipc_handle_of_dead_process_is_refused, 0) \
    X(ipc_open_of_nonsense_is_refused, 0) \
    X(ipc_opened_twice_is_at_one_address, 0) \
    X(ipc_close_twice_is_refused, ALONE) \
    X(ipc_close_of_foreign_memory_is_refused, ALONE) \
    X(ipc_opened_memory_is_not_freed_by_free, ALONE) \
    X(ipc_memory_of_killed_peer_comes_back, 0) \
    /* case_host.c */ \
    X(host_alloc_is_shared_with_kernels, 0) \
    X(host_alloc_has_one_address, 0) \
    X(host_alloc_takes_each_flag, 0) \
    X(host_alloc_of_nonsense_is_refused, 0) \
    X(host_alloc_of_size_zero_succeeds, 0) \
    X(host_alloc_takes_no_device_memory, 0) \
    X(host_free_of_nonsense_is_refused, ALONE) \
    X(host_free_of_null_does_nothing, 0) \
    X(host_free_twice_is_refused, ALONE) \
    X(host_device_pointer_of_nonsense_is_refused, 0) \
    X(register_lets_kernels_in, 0) \
    X(register_keeps_content_after_unregister, 0) \
    X(register_neighbours_are_one_range_to_kernels, 0) \
    X(register_neighbours_are_two_ranges_to_copies, ALONE) \
    X(register_twice_is_refused, 0) \
    X(register_of_overlapping_range_is_refused, 0) \
    X(register_of_pinned_memory_is_refused, 0) \
    X(register_of_unaligned_range_succeeds, 0) \
    X(register_of_nonsense_is_refused, 0) \
    X(register_of_unmapped_memory_is_refused, 0) \
    X(unregister_twice_is_refused, 0) \
    X(unregister_of_nonsense_is_refused, 0) \
    X(host_handle_is_written_and_read_by_kernels, NUMA) \
    X(host_handle_is_shared_with_the_cpu, NUMA) \
    X(host_handle_without_cpu_access, NUMA) \
    X(host_handle_for_the_cpu_alone, NUMA) \
    X(host_handle_read_only_for_the_cpu, NUMA) \
    X(host_handle_access_is_asked_back, NUMA) \
    X(host_handle_accessed_by_location_host, NUMA) \
    X(host_handle_mapped_twice_shows_the_same_memory, NUMA) \
    X(host_handle_imported_here_shows_the_same_memory, NUMA) \
    X(host_handle_is_shared_with_a_peers_gpu_and_cpu, NUMA) \
    X(host_handle_copies_to_and_from_device_memory, NUMA) \
    /* case_pool.c */ \
    X(pool_of_managed_memory_is_made, 0) \
    X(pool_of_managed_memory_with_fd_is_refused, 0) \
    X(pool_of_device_memory_with_fd_is_made, 0) \
    X(pool_of_nonsense_is_refused, 0) \
    X(pool_by_default_keeps_its_release_threshold, 0) \
    X(pool_by_default_of_nonsense_is_refused, 0) \
    X(pool_gives_memory_and_counts_it, 0) \
    X(pool_gives_no_more_than_its_limit, 0) \
    X(pool_destroyed_keeps_what_is_allocated, 0) \
    X(pool_of_the_device_can_be_replaced, 0) \
    X(pool_calls_with_nonsense_are_refused, 0) \
    X(pool_by_default_is_not_destroyed, 0) \
    X(pool_is_accessed_by_its_own_device, 0) \
    X(pool_is_accessed_by_a_peer_that_was_granted_it, PAIR) \
    X(pool_without_access_copied_by_a_peer, PAIR) \
    X(pool_of_another_device_is_not_the_devices_own, PAIR) \
    X(managed_memory_is_shared_with_the_cpu, 0) \
    X(managed_memory_of_nonsense_is_refused, 0) \
    X(async_alloc_and_free_in_stream_order, 0) \
    X(async_memory_is_freed_by_free, 0) \
    X(async_free_takes_plain_allocations, 0) \
    X(async_free_twice_is_refused, ALONE) \
    X(async_alloc_of_nonsense_is_refused, ALONE) \
    X(async_alloc_of_size_zero_succeeds, ALONE) \
    /* case_fault.c */ \
    X(fault_kernel_reads_reserved_memory, ALONE | VMM) \
    X(fault_kernel_writes_reserved_memory, ALONE | VMM) \
    X(fault_kernel_reads_unmapped_memory, ALONE | VMM) \
    X(fault_kernel_reads_beyond_the_mapping, ALONE | VMM) \
    X(fault_kernel_reads_mapping_without_access, ALONE | VMM) \
    X(fault_kernel_writes_read_only_memory, ALONE | VMM) \
    X(fault_kernel_writes_memory_turned_read_only, ALONE | VMM) \
    X(fault_kernel_reads_after_access_none, ALONE | VMM) \
    X(fault_kernel_reads_where_access_changes, ALONE | VMM) \
    X(fault_kernel_reads_null, ALONE) \
    X(fault_kernel_reads_plain_host_memory, ALONE) \
    X(fault_kernel_reads_unregistered_memory, ALONE) \
    X(fault_kernel_reads_misaligned_word, ALONE | VMM) \
    X(fault_error_stays, ALONE | VMM) \
    X(fault_refuses_plain_memory, ALONE | VMM) \
    X(fault_refuses_streams_and_events, ALONE | VMM) \
    X(fault_leaves_virtual_memory_management, ALONE | VMM) \
    X(fault_leaves_questions_answered, ALONE | VMM) \
    X(fault_of_a_peer_harms_the_peer_alone, VMM) \
    X(fault_here_leaves_a_peers_share, ALONE | VMM) \
    X(fault_of_a_peer_gives_its_memory_back_when_it_ends, VMM) \
    X(copy_from_reserved_memory_is_refused, ALONE | VMM) \
    X(copy_from_mapping_without_access_is_refused, ALONE | VMM) \
    X(copy_to_read_only_memory_is_refused, ALONE | VMM) \
    X(set_of_read_only_memory_is_refused, ALONE | VMM) \
    X(copy_beyond_the_mapping_is_refused, ALONE | VMM) \
    /* case_spin.c */ \
    X(spin_copies_on_another_stream, VMM) \
    X(spin_create_returns_at_once, VMM) \
    X(spin_map_returns_at_once, VMM) \
    X(spin_set_access_returns_at_once, VMM) \
    X(spin_unmap_returns_at_once, VMM) \
    X(spin_release_returns_at_once, VMM) \
    X(spin_alloc_returns_at_once, 0) \
    X(spin_alloc_async_returns_at_once, 0) \
    X(spin_free_waits_for_the_kernel, 0) \
    X(spin_kernel_sees_memory_mapped_meanwhile, VMM) \
    X(spin_kernel_sees_another_handle_at_the_same_address, VMM) \
    X(spin_page_moves_to_the_host_and_back, NUMA) \
    X(spin_kernel_sees_imported_memory, VMM) \
    X(spin_kernel_runs_beside_another, 0) \
    X(spin_host_alloc_returns_at_once, 0) \
    X(spin_host_free_waits_for_the_kernel, 0) \
    X(spin_register_returns_at_once, 0) \
    X(spin_unregister_waits_for_the_kernel, 0) \
    X(spin_create_of_host_memory_returns_at_once, NUMA) \
    X(spin_free_memory_is_told_at_once, VMM) \
    X(spin_reserve_and_address_free_return_at_once, 0) \
    X(spin_export_and_import_return_at_once, VMM) \
    /* case_limits.c */ \
    X(create_of_more_than_the_device_is_out_of_memory, VMM) \
    X(create_of_more_than_is_free_is_out_of_memory, VMM) \
    X(create_of_absurd_size_is_out_of_memory, VMM) \
    X(create_after_out_of_memory_succeeds, VMM) \
    X(alloc_of_more_than_the_device_is_out_of_memory, 0) \
    X(alloc_of_absurd_size_is_out_of_memory, 0) \
    X(async_alloc_of_more_than_the_device_is_out_of_memory, 0) \
    X(host_alloc_of_absurd_size_is_out_of_memory, 0) \
    X(create_of_more_than_is_left_is_out_of_memory, VMM) \
    X(reservation_may_exceed_the_device, VMM)
/* clang-format on */

#endif
