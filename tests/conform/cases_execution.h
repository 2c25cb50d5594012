/* tests/conform/cases_execution.h - the cases about starting, contexts, copies, streams, events,
 * stream memory operations, modules and launches, in the order in which they run.
 */
#ifndef CONFORM_CASES_EXECUTION_H
#define CONFORM_CASES_EXECUTION_H

/* clang-format off */
#define CONFORM_CASES_EXECUTION(X) \
    /* case_start.c */ \
    X(start_calls_before_init_refused, RAW) \
    X(start_version_and_names_need_no_init, RAW) \
    X(start_init_with_flags_refused_then_works, RAW) \
    X(start_init_from_threads_at_once_works, RAW) \
    X(start_error_names_match_the_header, 0) \
    X(start_unknown_error_has_no_name, 0) \
    X(device_queries_need_no_context, BARE) \
    X(device_ordinal_out_of_range_refused, 0) \
    X(device_name_is_cut_to_the_buffer, 0) \
    X(device_uuid_is_stable_and_its_own, 0) \
    X(device_bus_id_says_what_the_attributes_say, 0) \
    X(device_memory_total_bounds_free, 0) \
    X(device_attributes_are_what_gvmem_relies_on, 0) \
    X(device_attribute_unknown_refused, 0) \
    X(device_is_no_peer_of_itself, 0) \
    X(device_peers_reach_each_other, PAIR) \
    /* case_context.c */ \
    X(context_is_active_while_retained, BARE) \
    X(context_release_unretained_refused, BARE) \
    X(context_of_no_device_refused, BARE) \
    X(context_last_release_frees_its_memory, BARE) \
    X(context_reset_frees_its_memory_and_wants_a_retain, BARE) \
    X(context_reset_gives_it_another_number, BARE) \
    X(context_reset_leaves_virtual_memory, BARE | VMM) \
    X(context_retained_is_not_current, BARE) \
    X(context_calls_without_one_refused, BARE) \
    X(context_push_and_pop_nest, BARE) \
    X(context_set_replaces_the_top, BARE) \
    X(context_current_is_per_thread, 0) \
    X(context_synchronize_waits_for_every_stream, 0) \
    X(context_broken_is_not_healed_by_reset, ALONE | VMM) \
    X(peer_access_enable_and_disable_alternate, PAIR) \
    X(peer_access_lets_kernels_read_and_write, PAIR) \
    X(peer_memory_without_access_observed, PAIR | ALONE) \
    X(peer_copy_needs_no_access, PAIR) \
    /* case_created.c */ \
    X(created_before_init_is_refused, RAW) \
    X(created_is_current_at_once, ALONE) \
    X(created_by_each_version_of_the_call, ALONE) \
    X(created_of_nonsense_is_refused, ALONE) \
    X(created_contexts_nest, ALONE) \
    X(created_many_end_in_any_order, ALONE) \
    X(created_is_made_again_and_again, ALONE) \
    X(created_beneath_another_is_destroyed_in_place, ALONE) \
    X(created_destroy_of_nothing_is_refused, ALONE) \
    X(created_destroy_does_not_take_the_primary_one, ALONE) \
    X(created_floats_to_another_thread, ALONE) \
    X(created_is_current_to_two_threads_at_once, ALONE) \
    X(created_destroyed_elsewhere_stays_current_and_refuses, ALONE) \
    X(created_set_current_replaces_it, ALONE) \
    X(created_tells_its_scheduling, ALONE) \
    X(created_scheduling_can_be_changed, ALONE) \
    X(created_with_synchronous_copies, ALONE) \
    X(context_flags_without_one_are_refused, BARE) \
    X(context_primary_takes_flags_before_it_is_retained, BARE) \
    X(created_tells_its_api_version, ALONE) \
    X(context_api_version_without_one_is_refused, BARE) \
    X(created_has_a_number_of_its_own, ALONE) \
    X(created_memory_comes_back_with_it, ALONE) \
    X(created_leaves_the_memory_of_others, ALONE) \
    X(created_leaves_virtual_memory, ALONE | VMM) \
    X(created_leaves_stream_ordered_memory, ALONE) \
    X(created_memory_tells_its_context, ALONE) \
    X(created_runs_kernels_of_its_own_image, ALONE) \
    X(created_kernel_is_not_launched_into_another_context, ALONE) \
    X(created_memory_is_copied_from_another_context, ALONE) \
    X(created_is_no_peer_of_a_context_of_its_device, ALONE) \
    X(created_does_not_wait_for_another_context, ALONE) \
    X(created_streams_of_the_thread_are_apart, ALONE) \
    X(created_destroyed_with_work_observed, ALONE | VMM) \
    X(created_beside_a_reset_observed, ALONE) \
    X(context_reset_is_seen_by_other_threads, ALONE) \
    X(context_reset_gives_all_its_memory_back, ALONE) \
    X(created_fault_observed_in_the_others, ALONE | VMM) \
    /* case_copy.c */ \
    X(copy_odd_sizes_at_odd_offsets_exact, 0) \
    X(copy_device_to_device_unaligned_exact, 0) \
    X(copy_within_one_allocation_moves, 0) \
    X(copy_async_in_one_stream_keeps_order, 0) \
    X(copy_unified_finds_the_direction, 0) \
    X(copy_of_nothing_does_nothing, 0) \
    X(copy_of_nothing_at_null_does_nothing, 0) \
    X(copy_at_null_refused, ALONE) \
    X(copy_pageable_source_may_change_at_once, 0) \
    X(copy_to_pageable_is_done_on_return, 0) \
    X(copy_pinned_returns_before_it_is_done, 0) \
    X(copy_without_stream_waits_for_blocking_streams, 0) \
    X(copy_without_stream_passes_non_blocking_streams, 0) \
    X(copy_runs_beside_a_kernel, 0) \
    X(copy_crosses_adjacent_mappings, VMM) \
    X(copy_to_and_from_host_mapping, NUMA) \
    X(copy_between_device_and_host_mappings, NUMA) \
    X(copy_across_device_and_host_mapping_down, NUMA) \
    X(copy_across_device_and_host_mapping_up, NUMA) \
    X(copy_across_device_and_host_mapping_within, NUMA) \
    X(copy_to_reserved_range_refused, VMM | ALONE) \
    X(copy_within_the_device_of_reserved_range_refused, VMM | ALONE) \
    X(copy_past_end_of_allocation_refused, 0) \
    X(copy_across_hole_refused, VMM) \
    X(batch_scatters_and_gathers, 0) \
    X(batch_waits_for_its_stream, 0) \
    X(batch_reads_pageable_source_during_the_call, 0) \
    X(batch_crosses_tiers, NUMA) \
    X(batch_bad_arguments_refused, 0) \
    X(set_widths_exact, 0) \
    X(set_unaligned_refused, 0) \
    X(set_of_reserved_range_refused, VMM | ALONE) \
    X(set_of_pinned_memory_is_seen_by_the_host, 0) \
    X(set_crosses_adjacent_mappings, VMM) \
    X(set_crosses_device_and_host_mapping, NUMA) \
    /* case_stream.c */ \
    X(stream_capture_mode_is_exchanged, 0) \
    X(stream_runs_in_order, 0) \
    X(stream_orders_kernels_copies_and_sets, 0) \
    X(stream_query_tells_busy_from_done, 0) \
    X(stream_synchronize_of_empty_returns, 0) \
    X(stream_non_blocking_runs_beside_another, 0) \
    X(stream_blocking_runs_beside_another, 0) \
    X(stream_legacy_waits_for_blocking, 0) \
    X(stream_blocking_waits_for_legacy, 0) \
    X(stream_blocking_waits_for_legacy_work_between, 0) \
    X(stream_non_blocking_ignores_legacy, 0) \
    X(stream_legacy_ignores_non_blocking, 0) \
    X(stream_legacy_is_busy_while_a_blocking_one_is, 0) \
    X(stream_per_thread_is_blocking, 0) \
    X(stream_per_thread_differs_between_threads, 0) \
    X(stream_wait_event_holds_the_stream, 0) \
    X(stream_wait_event_unrecorded_passes, 0) \
    X(stream_wait_event_means_the_record_before_it, 0) \
    X(stream_wait_event_outlives_the_event, 0) \
    X(stream_wait_event_between_devices, PAIR) \
    X(stream_host_function_runs_in_order, 0) \
    X(stream_host_function_holds_only_its_stream, 0) \
    X(stream_host_function_may_not_call_cuda, ALONE) \
    X(stream_destroy_lets_its_work_finish, 0) \
    X(stream_with_priority_works, 0) \
    X(stream_create_bad_arguments_refused, 0) \
    X(stream_special_ones_cannot_be_destroyed, ALONE) \
    X(stream_many_work_at_once, 0) \
    X(stream_of_another_device_refused_for_kernels, PAIR) \
    /* case_event.c */ \
    X(event_unrecorded_is_done, 0) \
    X(event_is_pending_behind_work, 0) \
    X(event_covers_only_work_before_it, 0) \
    X(event_recorded_again_forgets_the_first, 0) \
    X(event_synchronize_waits_for_the_work, 0) \
    X(event_times_a_kernel, 0) \
    X(event_elapsed_time_needs_times, 0) \
    X(event_in_the_legacy_stream_covers_blocking_ones, 0) \
    X(event_destroyed_while_pending_is_fine, 0) \
    X(event_create_bad_arguments_refused, 0) \
    X(event_null_refused, ALONE) \
    X(event_of_another_device_cannot_be_recorded, PAIR) \
    /* case_value.c */ \
    X(value_write_32_and_64_exact, 0) \
    X(value_write_follows_its_stream, 0) \
    X(value_write_to_pinned_memory_is_seen_by_the_host, 0) \
    X(value_write_to_virtual_memory, VMM) \
    X(value_wait_32_conditions, 0) \
    X(value_wait_64_conditions, 0) \
    X(value_wait_fulfilled_passes, 0) \
    X(value_wait_released_by_another_stream, 0) \
    X(value_wait_released_by_a_kernel, 0) \
    X(value_wait_released_by_a_copy, 0) \
    X(value_wait_chain_passes_the_token, 0) \
    X(value_unaligned_refused, 0) \
    X(value_unknown_flags_refused, 0) \
    X(value_without_memory_refused, VMM) \
    /* case_module.c */ \
    X(module_load_gives_kernels, 0) \
    X(module_symbol_unknown_not_found, 0) \
    X(module_symbol_nonsense_refused, 0) \
    X(module_function_is_the_same_each_time, 0) \
    X(module_global_is_shared_with_its_kernels, 0) \
    X(module_globals_differ_between_loads, 0) \
    X(module_garbage_refused, ALONE) \
    X(module_unload_gives_everything_back, 0) \
    X(module_unload_waits_for_its_kernels, 0) \
    X(module_null_unload_refused, ALONE) \
    /* case_launch.c */ \
    X(launch_strides_cover_all_words, 0) \
    X(launch_runs_each_block_once, 0) \
    X(launch_runs_every_thread, 0) \
    X(launch_grid_of_three_dimensions, 0) \
    X(launch_many_small_ones, 0) \
    X(launch_takes_parameters_by_value, 0) \
    X(launch_takes_parameters_as_extra, 0) \
    X(launch_of_no_blocks_or_threads_refused, 0) \
    X(launch_of_too_many_threads_refused, 0) \
    X(launch_of_no_function_refused, ALONE) \
    X(launch_shared_memory_belongs_to_each_block, 0) \
    X(launch_shared_memory_is_limited, 0) \
    X(launch_shared_memory_limit_can_be_raised, 0) \
    X(launch_function_attributes_are_plausible, 0) \
    X(launch_occupancy_counts_blocks, 0) \
    X(launch_cooperative_blocks_meet, 0) \
    X(launch_cooperative_too_large_refused, 0) \
    X(launch_kernels_of_two_streams_exchange_flags, 0) \
    X(launch_kernel_and_host_see_each_others_stores, 0) \
    X(launch_reads_and_writes_pinned_memory, 0) \
    X(launch_fault_ends_other_kernels, ALONE | VMM)
/* clang-format on */

#endif
