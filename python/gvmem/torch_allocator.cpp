/* PyTorch's allocator of CUDA memory, over the pools of gvmem (pools.h).
 *
 * gvmem.torch.use() compiles it on the user's machine, against the PyTorch that is there, and loads it. It keeps what PyTorch alone
 * knows: observers, and the history of events for torch.cuda.memory._record_memory_history(). All else is in the pools. */
#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/ApproximateClock.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <exception>
#include <mutex>
#include <unordered_map>

#include "pools.h"

namespace {

using namespace c10::cuda::CUDACachingAllocator;
namespace caching = c10::CachingDeviceAllocator;
using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;
using caching::TraceEntry;
using c10::MempoolId_t;

const pool_calls *pools;

pool_id number(MempoolId_t id)
{
    return {id.first, id.second};
}

MempoolId_t mempool(pool_id id)
{
    return {id.first, id.second};
}

void check(int status)
{
    TORCH_CHECK(status == 0, "gvmem: ", pools->error());
}

void free_block(void *ptr);

/* What happened, while somebody wants to know. */
class History {
  public:
    std::atomic<bool> enabled{false};

    void record(bool on, CreateContextFn recorder, size_t most, RecordContext when, bool clear, const std::vector<std::string> &skipped)
    {
        const std::lock_guard<std::mutex> guard(mutex_);
        TORCH_CHECK(when == RecordContext::NEVER || recorder != nullptr, "stacks are recorded by a recorder");
        enabled = on;
        recorder_ = on ? recorder : nullptr;
        when_ = on ? when : RecordContext::NEVER;
        most_ = most > 0 ? most : 1;
        skipped_.clear();
        for (const auto &action : skipped)
            skipped_.push_back(caching::parseTraceEntryAction(action));
        if (!on || clear) {
            entries_.clear();
            contexts_.clear();
        }
    }

    /* Recorders may want Python's lock, so before ours. */
    std::shared_ptr<c10::GatheredContext> gather(RecordContext least) const
    {
        const CreateContextFn recorder = recorder_;
        return recorder != nullptr && when_ >= least ? recorder() : nullptr;
    }

    void note(TraceEntry::Action action, const pool_block &block, const std::shared_ptr<c10::GatheredContext> &context)
    {
        if (!enabled)
            return;
        TraceEntry entry(action, static_cast<c10::DeviceIndex>(block.device), reinterpret_cast<size_t>(block.address), block.requested_bytes,
                         block.stream, mempool(block.pool), c10::getApproximateTime(), when_ >= RecordContext::ALLOC ? context : nullptr);
        const std::lock_guard<std::mutex> guard(mutex_);
        if (action == TraceEntry::ALLOC && context != nullptr)
            contexts_[block.address] = context;
        else if (action == TraceEntry::FREE_COMPLETED)
            contexts_.erase(block.address);
        if (std::find(skipped_.begin(), skipped_.end(), action) != skipped_.end())
            return;
        entries_.push_back(std::move(entry));
        while (entries_.size() > most_)
            entries_.pop_front();
    }

    std::shared_ptr<c10::GatheredContext> context_of(const void *ptr)
    {
        const std::lock_guard<std::mutex> guard(mutex_);
        const auto found = contexts_.find(ptr);
        return found == contexts_.end() ? nullptr : found->second;
    }

    void write(std::vector<std::vector<TraceEntry>> &traces, MempoolId_t id)
    {
        const std::lock_guard<std::mutex> guard(mutex_);
        const auto to_ns = clock_.makeConverter();
        for (TraceEntry entry : entries_) {
            if (id != MempoolId_t{0, 0} && entry.mempool_ != id)
                continue;
            entry.time_.t_ = to_ns(entry.time_.approx_t_) / 1000;
            traces.at(static_cast<size_t>(entry.device_)).push_back(std::move(entry));
        }
    }

  private:
    std::mutex mutex_;
    std::atomic<CreateContextFn> recorder_{nullptr};
    std::atomic<RecordContext> when_{RecordContext::NEVER};
    size_t most_ = 1;
    std::vector<TraceEntry::Action> skipped_;
    std::deque<TraceEntry> entries_;
    std::unordered_map<const void *, std::shared_ptr<c10::GatheredContext>> contexts_; /* of live blocks */
    c10::ApproximateClockToUnixTimeConverter clock_;
};

void set(StatArray &to, const pool_count (&from)[POOLS_SIZES])
{
    static_assert(POOLS_ALL == static_cast<int>(StatType::AGGREGATE) && POOLS_SMALL == static_cast<int>(StatType::SMALL_POOL) &&
                  POOLS_LARGE == static_cast<int>(StatType::LARGE_POOL) && POOLS_SIZES == static_cast<int>(StatType::NUM_TYPES));
    for (size_t i = 0; i < POOLS_SIZES; i++) {
        to[i].current = from[i].current;
        to[i].peak = from[i].peak;
        to[i].allocated = from[i].allocated;
        to[i].freed = from[i].freed;
    }
}

void set(StatArray &to, int64_t current, int64_t peak)
{
    to[0].current = to[0].allocated = current;
    to[0].peak = peak;
}

class Allocator final : public CUDAAllocator {
  public:
    /* ---- blocks */

    c10::DataPtr allocate(size_t size) override
    {
        const c10::DeviceIndex device = c10::cuda::current_device();
        void *ptr = size > 0 ? take(device, size, c10::cuda::getCurrentCUDAStream(device).stream()) : nullptr;
        return {ptr, ptr, &free_block, c10::Device(c10::DeviceType::CUDA, device)};
    }

    c10::DeleterFnPtr raw_deleter() const override
    {
        return &free_block;
    }

    void *raw_alloc(size_t size) override
    {
        const c10::DeviceIndex device = c10::cuda::current_device();
        return size > 0 ? take(device, size, c10::cuda::getCurrentCUDAStream(device).stream()) : nullptr;
    }

    void *raw_alloc_with_stream(size_t size, cudaStream_t stream) override
    {
        return size > 0 ? take(c10::cuda::current_device(), size, stream) : nullptr;
    }

    void raw_delete(void *ptr) override
    {
        pool_block block;
        const bool told = ptr != nullptr && (history_.enabled || c10::memoryProfilingEnabled()) && pools->find(ptr, &block) == 0;
        if (told) {
            const auto context = history_.gather(RecordContext::ALL);
            history_.note(TraceEntry::FREE_REQUESTED, block, context);
            history_.note(TraceEntry::FREE_COMPLETED, block, context);
        }
        const int status = pools->free(ptr);
        if (status != 0)
            TORCH_WARN("gvmem: a block cannot be freed: ", pools->error());
        if (told)
            report(block, -static_cast<int64_t>(block.requested_bytes));
        if (const auto *python = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(python != nullptr))
            (*python)->trace_gpu_memory_deallocation(c10::kCUDA, reinterpret_cast<uintptr_t>(ptr));
    }

    void copy_data(void *to, const void *from, size_t count) const override
    {
        C10_CUDA_CHECK(cudaMemcpy(to, from, count, cudaMemcpyDeviceToDevice));
    }

    void *getBaseAllocation(void *ptr, size_t *size) override
    {
        pool_block block;
        check(pools->find(ptr, &block));
        if (size != nullptr)
            *size = block.requested_bytes;
        return ptr;
    }

    using CUDAAllocator::recordStream;
    void recordStream(const c10::DataPtr &ptr, c10::cuda::CUDAStream stream) override
    {
        if (ptr.get() != nullptr && ptr.get_deleter() == &free_block) /* others' memory is not ours to keep */
            check(pools->use(ptr.get(), stream.stream()));
    }

    /* ---- devices */

    void init(int device_count) override
    {
        device_count_ = device_count;
        fractions_.assign(static_cast<size_t>(device_count), 1.0);
    }

    bool initialized() override
    {
        return device_count_ > 0;
    }

    double getMemoryFraction(c10::DeviceIndex device) override
    {
        return fractions_.at(static_cast<size_t>(device));
    }

    void setMemoryFraction(double fraction, c10::DeviceIndex device) override
    {
        TORCH_CHECK(fraction >= 0 && fraction <= 1, "invalid fraction ", fraction, ": it should be in [0, 1]");
        fractions_.at(static_cast<size_t>(device)) = fraction;
        check(pools->set_limit(device, fraction < 1 ? static_cast<uint64_t>(fraction * static_cast<double>(memory(device).second)) : UINT64_MAX));
    }

    void enablePeerAccess(c10::DeviceIndex device, c10::DeviceIndex other) override
    {
        const c10::cuda::CUDAGuard guard(device);
        const cudaError_t error = cudaDeviceEnablePeerAccess(other, 0);
        if (error == cudaErrorPeerAccessAlreadyEnabled)
            (void)cudaGetLastError();
        else
            C10_CUDA_CHECK(error);
        check(pools->grant(other, device));
    }

    cudaError_t memcpyAsync(void *to, int to_device, const void *from, int from_device, size_t count, cudaStream_t stream,
                            bool reachable) override
    {
        return reachable || to_device == from_device ? cudaMemcpyAsync(to, from, count, cudaMemcpyDeviceToDevice, stream)
                                                     : cudaMemcpyPeerAsync(to, to_device, from, from_device, count, stream);
    }

    void enable(bool) override {}

    bool isEnabled() const override
    {
        return true;
    }

    std::string name() override
    {
        return "gvmem";
    }

    /* ---- memory that is kept */

    void emptyCache(MempoolId_t id = {0, 0}) override
    {
        check(pools->trim(-1, number(id)));
    }

    void cacheInfo(c10::DeviceIndex device, size_t *largest) override
    {
        if (*largest == 0)
            *largest = memory(device).first;
        *largest = std::max(*largest, static_cast<size_t>(stats_of(device).idle_bytes));
    }

    std::vector<StreamSegmentSize> getExpandableSegmentSizes(c10::DeviceIndex) override
    {
        return {};
    }

    /* ---- pools */

    void beginAllocateToPool(c10::DeviceIndex device, MempoolId_t id, std::function<bool(cudaStream_t)> filter) override
    {
        using Filter = std::function<bool(cudaStream_t)>;
        pool_filter c_filter;
        c_filter.takes = [](void *arg, void *stream) {
            try {
                return static_cast<int>((*static_cast<Filter *>(arg))(static_cast<cudaStream_t>(stream)));
            } catch (const std::exception &) { /* through C, where a lock is held, none may go: a stream that cannot be asked is in no capture */
                return 0;
            }
        };
        c_filter.drop = [](void *arg) { delete static_cast<Filter *>(arg); };
        c_filter.arg = new Filter(std::move(filter));
        check(pools->begin(device, number(id), c_filter));
    }

    void endAllocateToPool(c10::DeviceIndex device, MempoolId_t id) override
    {
        check(pools->end(device, number(id)));
    }

    void releasePool(c10::DeviceIndex device, MempoolId_t id) override
    {
        check(pools->release(device, number(id)));
    }

    int getPoolUseCount(c10::DeviceIndex device, MempoolId_t id) override
    {
        return pools->users(device, number(id));
    }

    void createOrIncrefPool(c10::DeviceIndex device, MempoolId_t id, std::shared_ptr<CUDAAllocator> allocator = nullptr) override
    {
        TORCH_CHECK_NOT_IMPLEMENTED(allocator == nullptr || allocator.get() == this, "gvmem: a MemPool has no allocator of its own: leave allocator out");
        check(pools->retain(device, number(id)));
    }

    void setUseOnOOM(c10::DeviceIndex, MempoolId_t, bool) override {} /* what is idle in a pool is given to all that lack memory */

    std::shared_ptr<AllocatorState> getCheckpointState(c10::DeviceIndex, MempoolId_t) override
    {
        no_checkpoints();
    }

    CheckpointDelta setCheckpointPoolState(c10::DeviceIndex, std::shared_ptr<AllocatorState>) override
    {
        no_checkpoints();
    }

    /* ---- other processes */

    ShareableHandle shareIpcHandle(void *) override
    {
        no_ipc();
    }

    std::shared_ptr<void> getIpcDevPtr(std::string) override
    {
        no_ipc();
    }

    /* ---- telling */

    caching::DeviceStats getDeviceStats(c10::DeviceIndex device) override
    {
        const pool_stats s = stats_of(device);
        caching::DeviceStats stats;
        set(stats.allocation, s.blocks);
        set(stats.active, s.blocks);
        set(stats.allocated_bytes, s.bytes);
        set(stats.active_bytes, s.bytes);
        set(stats.requested_bytes, s.requested_bytes);
        stats.active_bytes[0].current += s.pending_bytes;
        set(stats.segment, s.segments, s.segments);
        set(stats.reserved_bytes, s.held_bytes, s.held_peak_bytes);
        const int64_t unused = s.held_bytes - stats.active_bytes[0].current - s.idle_bytes; /* in chunks that are partly used */
        set(stats.inactive_split_bytes, std::max<int64_t>(unused, 0), std::max<int64_t>(unused, 0));
        stats.num_alloc_retries = s.retries;
        stats.num_ooms = s.failures;
        stats.num_device_alloc = s.commits;
        stats.num_device_free = s.decommits;
        return stats;
    }

    void resetAccumulatedStats(c10::DeviceIndex device) override
    {
        check(pools->reset_counts(device));
    }

    void resetPeakStats(c10::DeviceIndex device) override
    {
        check(pools->reset_peaks(device));
    }

    SnapshotInfo snapshot(MempoolId_t id = {0, 0}, bool include_traces = true) override
    {
        struct Walk {
            Allocator *self;
            SnapshotInfo info;
            const void *range = nullptr;
            std::exception_ptr failure;
        } walk{this, {}};
        check(pools->walk(number(id), [](void *arg, const pool_extent *extent) {
            auto &w = *static_cast<Walk *>(arg);
            if (w.failure)
                return;
            try {
                if (w.info.segments.empty() || w.range != extent->range || extent->address == extent->range)
                    w.info.segments.push_back(segment_of(*extent));
                w.range = extent->range;
                add_block(w.info.segments.back(), *extent, w.self->history_.context_of(extent->address));
            } catch (...) { /* through C, which has a list and a pool in use, none may go */
                w.failure = std::current_exception();
            }
        }, &walk));
        if (walk.failure)
            std::rethrow_exception(walk.failure);
        walk.info.device_traces.resize(static_cast<size_t>(std::max(device_count_, 1)));
        if (include_traces)
            history_.write(walk.info.device_traces, id);
        return std::move(walk.info);
    }

    bool isHistoryEnabled() override
    {
        return history_.enabled;
    }

    void recordHistory(bool enabled, CreateContextFn recorder, size_t most, RecordContext when, bool clear,
                       const std::vector<std::string> &skipped) override
    {
        history_.record(enabled, recorder, most, when, clear, skipped);
    }

    /* They ask for segments that come and go, to register them elsewhere; a heap's memory comes and goes within its addresses. */
    void attachAllocatorTraceTracker(AllocatorTraceTracker) override
    {
        TORCH_CHECK_NOT_IMPLEMENTED(false, "gvmem: memory is not registered with NCCL: leave out register_mem_pool() and TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK");
    }

    void attachOutOfMemoryObserver(OutOfMemoryObserver observer) override
    {
        const std::lock_guard<std::mutex> guard(mutex_);
        observers_.push_back(std::move(observer));
    }

    /* Not all releases have these: so none says that it overrides one. */

    virtual std::shared_ptr<c10::GatheredContext> getContextForPointer(const void *ptr)
    {
        return history_.context_of(ptr);
    }

    /* A block has addresses of its own in any case, and what is idle goes back in chunks. */
    virtual void setNoSplit(c10::DeviceIndex, MempoolId_t) {}

    /* Nothing is rejected before it was tried. */
    virtual void attachOomRejectionObserver(std::function<void(int64_t, size_t, size_t, size_t)>) {}

  private:
    int device_count_ = 0;
    std::vector<double> fractions_;
    std::mutex mutex_;
    std::vector<OutOfMemoryObserver> observers_;
    History history_;

    static pool_stats stats_of(c10::DeviceIndex device)
    {
        pool_stats stats;
        check(pools->stats(device, &stats));
        return stats;
    }

    static std::pair<size_t, size_t> memory(c10::DeviceIndex device)
    {
        const c10::cuda::CUDAGuard guard(device);
        std::pair<size_t, size_t> bytes;
        C10_CUDA_CHECK(cudaMemGetInfo(&bytes.first, &bytes.second));
        return bytes;
    }

    void *take(c10::DeviceIndex device, size_t size, cudaStream_t stream)
    {
        void *ptr = nullptr;
        int status = pools->alloc(device, size, stream, &ptr);
        if (C10_UNLIKELY(status == POOLS_NO_SPACE) && call_others())
            status = pools->alloc(device, size, stream, &ptr);
        if (C10_UNLIKELY(status == POOLS_NO_SPACE))
            fail(device, size, stream);
        check(status);
        if (C10_UNLIKELY(history_.enabled || c10::memoryProfilingEnabled())) {
            pool_block block;
            check(pools->find(ptr, &block));
            history_.note(TraceEntry::ALLOC, block, history_.gather(RecordContext::STATE));
            report(block, static_cast<int64_t>(size));
        }
        if (const auto *python = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(python != nullptr))
            (*python)->trace_gpu_memory_allocation(c10::kCUDA, reinterpret_cast<uintptr_t>(ptr));
        return ptr;
    }

    /* Parts of PyTorch that may have memory to give. */
    static bool call_others()
    {
        bool freed = false;
        for (const auto &key : c10::FreeCudaMemoryCallbacksRegistry()->Keys())
            freed = c10::FreeCudaMemoryCallbacksRegistry()->Create(key)->Execute() || freed;
        return freed;
    }

    [[noreturn]] void fail(c10::DeviceIndex device, size_t size, cudaStream_t stream)
    {
        const std::string why = pools->error();
        const auto [free, total] = memory(device);
        const pool_stats s = stats_of(device);
        const auto gib = [](auto bytes) { return c10::str(static_cast<double>(bytes) / (1 << 30), " GiB"); };
        const pool_block nowhere = {reinterpret_cast<void *>(free), stream, size, device, {0, 0}};
        history_.note(TraceEntry::OOM, nowhere, history_.gather(RecordContext::ALLOC));
        c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(size), static_cast<size_t>(s.bytes[POOLS_ALL].current),
                                         static_cast<size_t>(s.held_bytes), c10::Device(c10::DeviceType::CUDA, device));
        std::vector<OutOfMemoryObserver> observers;
        {
            const std::lock_guard<std::mutex> guard(mutex_);
            observers = observers_;
        }
        for (const auto &observer : observers)
            observer(device, size, total, free);
        TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ", gib(size), ". GPU ", static_cast<int>(device),
                         " has a total capacity of ", gib(total), " of which ", gib(free), " is free. Of what this process has by gvmem, ",
                         gib(s.held_bytes), ", ", gib(s.bytes[POOLS_ALL].current), " is in use. gvmem: ", why);
        std::abort(); /* not reached */
    }

    static void report(const pool_block &block, int64_t change)
    {
        if (!c10::memoryProfilingEnabled())
            return;
        pool_stats s;
        if (pools->stats(block.device, &s) != 0) /* a child made by fork(): no error may leave a destructor */
            return;
        c10::reportMemoryUsageToProfiler(block.address, change, static_cast<size_t>(s.bytes[POOLS_ALL].current), static_cast<size_t>(s.held_bytes),
                                         c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(block.device)));
    }

    static caching::SegmentInfo segment_of(const pool_extent &extent)
    {
        caching::SegmentInfo segment;
        segment.device = static_cast<c10::DeviceIndex>(extent.device);
        segment.address = reinterpret_cast<size_t>(extent.range);
        segment.stream = extent.stream;
        segment.is_large = true;
        segment.is_expandable = true;
        segment.owner_private_pool_id = mempool(extent.pool);
        return segment;
    }

    static void add_block(caching::SegmentInfo &segment, const pool_extent &extent, std::shared_ptr<c10::GatheredContext> context)
    {
        caching::BlockInfo block;
        block.size = extent.bytes;
        block.allocated = extent.use == POOL_LIVE;
        block.active = block.allocated || extent.use == POOL_PENDING;
        block.requested_size = block.allocated ? extent.requested_bytes : extent.bytes;
        if (block.allocated)
            block.context_when_allocated = std::move(context);
        segment.total_size += extent.bytes;
        segment.allocated_size += block.allocated ? extent.bytes : 0;
        segment.active_size += block.active ? extent.bytes : 0;
        segment.requested_size += block.allocated ? extent.requested_bytes : 0;
        segment.blocks.push_back(std::move(block));
    }

    [[noreturn]] static void no_checkpoints()
    {
        TORCH_CHECK_NOT_IMPLEMENTED(false, "gvmem: the state of a memory pool cannot be set back, as torch.compile's trees of CUDA graphs do: set "
                                           "torch._inductor.config.triton.cudagraph_trees = False");
        std::abort(); /* not reached */
    }

    [[noreturn]] static void no_ipc()
    {
        TORCH_CHECK_NOT_IMPLEMENTED(false, "gvmem: tensors of a GPU are not sent to other processes: publish them by gvmem.torch.publish()");
        std::abort(); /* not reached */
    }
};

Allocator *allocator_of_gvmem;

void free_block(void *ptr)
{
    allocator_of_gvmem->raw_delete(ptr);
}

} // namespace

/* Makes it PyTorch's allocator. Returns NULL, or why not. It is never destroyed, as tensors are freed to the last. */
extern "C" __attribute__((visibility("default"))) const char *gvmem_torch_install(const pool_calls *calls);

const char *gvmem_torch_install(const pool_calls *calls)
{
    if (calls->struct_bytes != sizeof *calls)
        return "it was compiled for another version of gvmem";
    if (c10::cuda::CUDACachingAllocator::allocator.load()->initialized())
        return "CUDA is initialized already";
    pools = calls;
    allocator_of_gvmem = new Allocator;
    c10::SetAllocator(c10::DeviceType::CUDA, allocator_of_gvmem);
    c10::cuda::CUDACachingAllocator::allocator.store(allocator_of_gvmem);
    return nullptr;
}
