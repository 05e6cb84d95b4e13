#include "kernels/job_graph.h"

#include <algorithm>

#include "kernels/format.h"

namespace moesaic {
namespace {

std::size_t index(std::ptrdiff_t slab) {
  return static_cast<std::size_t>(slab);
}

}  // namespace

void JobGraph::begin() {
  slabs_.clear();
  pack_order_.clear();
  jobs_.clear();
  waiting_.reset();
}

std::size_t JobGraph::add_slab(const Slab& slab) {
  slabs_.push_back({.slab = slab});
  slabs_.back().slab.bytes = round_up(slab.bytes, 64);
  return slabs_.size() - 1;
}

void JobGraph::add_pack_jobs(std::size_t slab, const Split& split) {
  PlacedSlab& packed = slabs_[slab];
  pack_order_.push_back(slab);
  packed.first_job = std::ssize(jobs_);
  for (std::int64_t i = 0; i < split.count; i += split.per_job) {
    jobs_.push_back({Job::Kind::pack, slab, i, std::min(split.per_job, split.count - i)});
  }
  if (packed.slab.after >= 0) slabs_[index(packed.slab.after)].last_job = std::ssize(jobs_) - 1;
}

void JobGraph::add_multiply_jobs(std::size_t slab, const Split& split) {
  for (std::int64_t i = 0; i < split.count; i += split.per_job) {
    jobs_.push_back({Job::Kind::multiply, slab, i, std::min(split.per_job, split.count - i)});
    ++slabs_[slab].jobs;
  }
  const std::ptrdiff_t beside = slabs_[slab].slab.beside;
  slabs_[slab].last_job = std::ssize(jobs_) - 1;
  if (beside >= 0) slabs_[index(beside)].last_job = std::ssize(jobs_) - 1;
}

void JobGraph::add_in_turn(std::size_t slab, const Split& to_pack, const Split& to_multiply) {
  add_pack_jobs(slab, to_pack);
  add_waiting();
  waiting_ = {slab, to_multiply};
}

void JobGraph::add_waiting() {
  if (!waiting_) return;
  add_multiply_jobs(waiting_->slab, waiting_->split);
  waiting_.reset();
}

/// Room for any slab beside those before it that have to stay, since jobs that come later read them
/// or since threads need them ready, and for what stays empty at the end of a lap.
std::int64_t JobGraph::ring_bytes(int threads) const {
  std::int64_t all = 0;
  std::int64_t largest = 0;
  std::int64_t window = 0;  // bytes and jobs of the slabs [first, i)
  std::int64_t jobs = 0;
  std::int64_t widest = 0;
  std::size_t first = 0;
  for (std::size_t i = 0; i < pack_order_.size(); ++i) {
    const PlacedSlab& slab = slabs_[pack_order_[i]];
    while (first < i) {
      const PlacedSlab& oldest = slabs_[pack_order_[first]];
      const bool is_open = oldest.last_job >= slab.first_job;
      if (is_open || jobs - oldest.jobs < ready_jobs(threads)) break;
      window -= oldest.slab.bytes;
      jobs -= oldest.jobs;
      ++first;
    }
    window += slab.slab.bytes;
    jobs += slab.jobs;
    widest = std::max(widest, window);
    largest = std::max(largest, slab.slab.bytes);
    all += slab.slab.bytes;
  }
  return std::min(all, widest + largest);
}

void JobGraph::place_slabs(int threads) {
  const std::int64_t bytes = ring_bytes(threads);
  ring_.reserve(bytes);
  std::int64_t at = 0;
  std::int64_t lap = 0;
  std::size_t oldest = 0;  // of pack_order_: whose place nothing has taken yet
  for (std::size_t i = 0; i < pack_order_.size(); ++i) {
    PlacedSlab& slab = slabs_[pack_order_[i]];
    if (at + slab.slab.bytes > bytes) {
      at = 0;
      ++lap;
    }
    slab.offset = at;
    slab.lap = lap;
    at += slab.slab.bytes;
    const auto is_displaced = [&](const PlacedSlab& old) {
      return old.lap + 1 < lap || (old.lap + 1 == lap && old.offset < at);
    };
    while (oldest < i && is_displaced(slabs_[pack_order_[oldest]])) ++oldest;
    slab.displaced_end = oldest;
  }
}

void JobGraph::count_jobs() {
  to_pack_.reset(slabs_.size());
  to_multiply_.reset(slabs_.size());
  in_use_.reset(slabs_.size());
  for (const Job& job : jobs_) {
    const Slab& slab = slabs_[job.slab].slab;
    if (job.kind == Job::Kind::pack) {
      to_pack_.add(job.slab);
      if (slab.after >= 0) in_use_.add(index(slab.after));
    } else {
      to_multiply_.add(job.slab);
      in_use_.add(job.slab);
      if (slab.beside >= 0) in_use_.add(index(slab.beside));
    }
  }
}

/// Every job looks for itself at all slabs that are not known to be free: one that a neighbour in
/// the ring displaced may reach into this one's place, and the neighbour may still wait for it.
bool JobGraph::wait_to_pack(const PlacedSlab& slab) {
  for (std::size_t i = free_.load(std::memory_order_acquire); i < slab.displaced_end; ++i) {
    if (!in_use_.wait(pack_order_[i], aborted_)) return false;
  }
  std::size_t known = free_.load(std::memory_order_relaxed);
  while (known < slab.displaced_end &&
         !free_.compare_exchange_weak(known, slab.displaced_end, std::memory_order_acq_rel)) {
  }
  return slab.slab.after < 0 || to_multiply_.wait(index(slab.slab.after), aborted_);
}

bool JobGraph::wait_to_multiply(std::size_t number) const {
  const Slab& slab = slabs_[number].slab;
  return to_pack_.wait(number, aborted_) &&
         (slab.beside < 0 || to_pack_.wait(index(slab.beside), aborted_)) &&
         (slab.continues < 0 || to_multiply_.wait(index(slab.continues), aborted_));
}

bool JobGraph::begin_job(const Job& job) {
  if (aborted_.load(std::memory_order_relaxed)) return false;
  return job.kind == Job::Kind::pack ? wait_to_pack(slabs_[job.slab]) : wait_to_multiply(job.slab);
}

void JobGraph::end_job(const Job& job) {
  const Slab& slab = slabs_[job.slab].slab;
  if (job.kind == Job::Kind::pack) {
    to_pack_.done(job.slab);
    if (slab.after >= 0) in_use_.done(index(slab.after));
    return;
  }
  to_multiply_.done(job.slab);
  in_use_.done(job.slab);
  if (slab.beside >= 0) in_use_.done(index(slab.beside));
}

void JobGraph::run(ThreadPool& pool, Work& work) {
  add_waiting();
  place_slabs(pool.size());
  count_jobs();
  aborted_.store(false, std::memory_order_relaxed);
  free_.store(0, std::memory_order_relaxed);
  pool.parallel_for(std::ssize(jobs_), [&](std::int64_t number, int worker) {
    const Job& job = jobs_[static_cast<std::size_t>(number)];
    try {
      if (!begin_job(job)) return;
      job.kind == Job::Kind::pack ? work.pack(job, worker) : work.multiply(job, number, worker);
      end_job(job);
    } catch (...) {
      aborted_.store(true, std::memory_order_relaxed);
      throw;
    }
  });
}

}  // namespace moesaic
