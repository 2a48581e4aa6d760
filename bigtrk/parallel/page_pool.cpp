// The memory of large tensors on a CPU: pages that are freed serve tensors of any other size.
//
// glibc either gives large blocks back to the system, which clears each page for the next one, or
// keeps them, and then a block serves only what fits in it. Here pages move between tensors by
// mremap(2): the system clears none of them again, and a process holds no more than its tensors
// once had together.
//
// A block is whole units, which are huge pages, and grains for what is left of its bytes.

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <pthread.h>
#include <sys/mman.h>

#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace {

constexpr size_t UNIT = size_t{2} << 20;
// Tensors of 4 to 12 MiB, no two of one size, took 143, 87, 64, 53 and 59 ms per GiB with grains of
// 32 to 512 KiB, and 160 ms with cleared pages (medians of ten, two cores).
// A tensor takes whole grains: with those of 256 KiB attention networks took up to 2 % more memory.
constexpr size_t GRAIN = size_t{128} << 10;
// Pieces that were moved are mappings of their own, of which Linux allows a process 65,530. Beyond
// this many, some 60 GB in units or 4 GB in grains, a block without its like has pages of the
// system.
constexpr size_t MOST_MAPPINGS = 30000;
// More than any machine has, and few enough for no sum of sizes to overflow.
constexpr size_t MOST_BYTES = size_t{1} << 46;

size_t rounded_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

void give_back(char* start, size_t bytes) {
    if (bytes) munmap(start, bytes);
}

struct Block {
    char* start;
    size_t bytes, pieces;
};

class Pool {
  public:
    void use(bool huge_pages) {
        const std::lock_guard<std::mutex> lock(mutex_);
        used_ = true;
        huge_pages_ = huge_pages;
    }

    void leave() {
        const std::lock_guard<std::mutex> lock(mutex_);
        used_ = false;
        release();
    }

    void empty() {
        const std::lock_guard<std::mutex> lock(mutex_);
        release();
    }

    std::mutex& mutex() { return mutex_; }

    // Returns a block of so many bytes or more, nullptr where the system gives none.
    char* take(size_t bytes) {
        const size_t size = rounded_up(bytes, GRAIN);
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto alike = idle_.find(size);
        const Block block = alike == idle_.end() ? assembled(size) : last_of(alike);
        if (block.start) taken_[block.start] = block;
        return block.start;
    }

    // Frees a block, and says whether the pool had given it.
    bool put(char* start) {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto found = taken_.find(start);
        if (found == taken_.end()) return false;
        const Block block = found->second;
        taken_.erase(found);
        if (used_) {
            idle_[block.bytes].push_back(block);
        } else {
            drop(block);
        }
        return true;
    }

  private:
    using Idle = std::map<size_t, std::vector<Block>>;  // by bytes

    Block last_of(Idle::iterator alike) {
        const Block block = alike->second.back();
        alike->second.pop_back();
        if (alike->second.empty()) idle_.erase(alike);
        return block;
    }

    Block assembled(size_t size) {
        if (!moves_ || mappings() > MOST_MAPPINGS) release();
        char* start = reserve(size);
        if (!start) {
            // What is kept may be what the system lacks.
            release();
            start = reserve(size);
        }
        if (!start) return {nullptr, size, 0};
        Block block{start, size, 0};
        char* const units_end = start + size / UNIT * UNIT;
        char* const end = start + size;
        char* at = start;
        for (; at < units_end && unit(); at += UNIT, ++block.pieces)
            if (!moved(units_, UNIT, at)) return unmoved(block, at, UNIT);
        // Before the system gives units, it gets grains that would make as many.
        const size_t missing = (units_end - at) / GRAIN;
        for (size_t i = 0; i < missing && !grains_.empty(); ++i) {
            give_back(grains_.back(), GRAIN);
            grains_.pop_back();
        }
        for (at = units_end; at < end && grain(); at += GRAIN, ++block.pieces)
            if (!moved(grains_, GRAIN, at)) return unmoved(block, at, GRAIN);
        pieces_ += block.pieces;
        return block;
    }

    // Returns pages of the system instead of a block of which a piece could not be moved to `at`, and
    // moves none from then on. Linux may have unmapped that place, and given it to another thread.
    Block unmoved(const Block& block, char* at, size_t piece) {
        moves_ = false;
        give_back(block.start, at - block.start);
        give_back(at + piece, block.start + block.bytes - (at + piece));
        release();
        return {reserve(block.bytes), block.bytes, 0};
    }

    size_t mappings() const {
        // Units and grains of a block that was not assembled are two.
        return pieces_ + units_.size() + grains_.size() + 2 * taken_.size();
    }

    // Reserves addresses that begin with a unit; nullptr where the system has none.
    char* reserve(size_t size) {
        const size_t more = size + UNIT;
        void* const found =
            mmap(nullptr, more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (found == MAP_FAILED) return nullptr;
        char* const first = static_cast<char*>(found);
        const auto address = reinterpret_cast<uintptr_t>(first);
        char* const start = first + (rounded_up(address, UNIT) - address);
        give_back(first, start - first);
        give_back(start + size, UNIT - (start - first));
        if (huge_pages_) {
            const size_t units = size / UNIT * UNIT;
            if (units) madvise(start, units, MADV_HUGEPAGE);
            // A huge page is not to reach beyond what is asked for.
            if (size > units) madvise(start + units, size - units, MADV_NOHUGEPAGE);
        }
        return start;
    }

    // Moves the last piece of a list, where it stays if it cannot be moved.
    bool moved(std::vector<char*>& from, size_t bytes, char* to) {
        void* const found = mremap(from.back(), bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to);
        if (found == MAP_FAILED) return false;
        from.pop_back();
        return true;
    }

    // Says whether there is a free unit, one of a block that waited for its like if need be.
    bool unit() {
        while (units_.empty() && !idle_.empty()) dismantle();
        return !units_.empty();
    }

    bool grain() {
        while (grains_.empty() && !idle_.empty()) dismantle();
        if (grains_.empty() && !units_.empty()) {
            for (size_t at = 0; at < UNIT; at += GRAIN) grains_.push_back(units_.back() + at);
            units_.pop_back();
        }
        return !grains_.empty();
    }

    // Takes the longest idle block apart.
    void dismantle() {
        const Block block = last_of(std::prev(idle_.end()));
        pieces_ -= block.pieces;
        char* const end = block.start + block.bytes;
        char* at = block.start;
        for (; at + UNIT <= end; at += UNIT) units_.push_back(at);
        for (; at < end; at += GRAIN) grains_.push_back(at);
    }

    void drop(const Block& block) {
        pieces_ -= block.pieces;
        give_back(block.start, block.bytes);
    }

    void release() {
        for (const auto& [bytes, blocks] : idle_)
            for (const Block& block : blocks) drop(block);
        for (char* const start : units_) give_back(start, UNIT);
        for (char* const start : grains_) give_back(start, GRAIN);
        idle_.clear();
        units_.clear();
        grains_.clear();
    }

    std::mutex mutex_;
    bool used_ = false, huge_pages_ = false, moves_ = true;
    size_t pieces_ = 0;  // of all blocks
    std::unordered_map<char*, Block> taken_;
    Idle idle_;
    std::vector<char*> units_, grains_;
};

// Tensors may outlive what is destroyed when the process ends.
Pool& pool = *new Pool;
c10::Allocator& others = *c10::GetDefaultCPUAllocator();
c10::Allocator* before = &others;  // what is used outside the pool's use
size_t least = 0;

void free_any(void* start) {
    // Blocks begin with a unit: what does not is none, and waits for no other thread.
    if (reinterpret_cast<uintptr_t>(start) % UNIT == 0 && pool.put(static_cast<char*>(start))) {
        c10::profiledCPUMemoryReporter().Delete(start);
    } else if (start) {
        others.raw_deleter()(start);
    }
}

struct PoolAllocator final : c10::Allocator {
    c10::DataPtr allocate(size_t bytes) override {
        const bool large = bytes >= least && bytes <= MOST_BYTES;
        void* start = large ? pool.take(bytes) : nullptr;
        if (start) {
            c10::profiledCPUMemoryReporter().New(start, bytes);
        } else {
            start = from_others(bytes);
        }
        return {start, start, &free_any, c10::Device(c10::DeviceType::CPU)};
    }

    c10::DeleterFnPtr raw_deleter() const override { return &free_any; }

    void copy_data(void* to, const void* from, size_t bytes) const override {
        default_copy_data(to, from, bytes);
    }

  private:
    static void* from_others(size_t bytes) {
        try {
            return others.raw_allocate(bytes);
        } catch (const c10::Error&) {
            pool.empty();  // which may be what is lacking
            return others.raw_allocate(bytes);
        }
    }
};

PoolAllocator& allocator = *new PoolAllocator;

// A process that forks while a thread has the lock would leave it locked in the new one.
[[maybe_unused]] const int with_forks = pthread_atfork(
    [] { pool.mutex().lock(); }, [] { pool.mutex().unlock(); }, [] { pool.mutex().unlock(); });

}  // namespace

// Has tensors of so many bytes or more come from the pool.
extern "C" void use_page_pool(size_t bytes, int huge_pages) {
    least = bytes;
    pool.use(huge_pages);
    before = c10::GetCPUAllocator();
    c10::SetCPUAllocator(&allocator, 1);
}

// Has all tensors come from where they came before, and pages go back to the system when freed.
extern "C" void leave_page_pool() {
    c10::SetCPUAllocator(before, 1);
    pool.leave();
}

// Gives what is free back to the system.
extern "C" void empty_page_pool() { pool.empty(); }
