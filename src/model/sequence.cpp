#include "src/model/sequence.h"

#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/rounding.h"

namespace moesaic {
namespace {

std::size_t pages_of(std::int64_t positions) {
  return static_cast<std::size_t>(divide_up(positions, kPagePositions));
}

}  // namespace

Sequence KvPool::make_sequence(std::int64_t prompt_length) {
  return {*this, prompt_length};
}

Sequence::Sequence(KvPool& pool, std::int64_t prompt_length)
    : prompt_length_(prompt_length), states_(static_cast<std::size_t>(pool.state_bytes_)) {
  pool.count_bytes(pool.state_bytes_);
  pool_ = &pool;  // from here on there is something to give back
}

Sequence::Sequence(Sequence&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      prompt_length_(other.prompt_length_),
      size_(std::exchange(other.size_, 0)),
      pages_(std::move(other.pages_)),
      page_data_(std::move(other.page_data_)),
      states_(std::move(other.states_)) {}

Sequence& Sequence::operator=(Sequence&& other) noexcept {
  if (this == &other) return *this;
  clear();
  pool_ = std::exchange(other.pool_, nullptr);
  prompt_length_ = other.prompt_length_;
  size_ = std::exchange(other.size_, 0);
  pages_ = std::move(other.pages_);
  page_data_ = std::move(other.page_data_);
  states_ = std::move(other.states_);
  return *this;
}

void Sequence::clear() noexcept {
  if (pool_ == nullptr) return;
  drop_pages_from(0);
  pool_->bytes_ -= pool_->state_bytes_;
  states_ = ByteBuffer();
  pool_ = nullptr;
  size_ = 0;
}

void Sequence::drop_pages_from(std::size_t first) noexcept {
  for (std::size_t index = first; index < pages_.size(); ++index) pool_->release(pages_[index]);
  pages_.resize(std::min(first, pages_.size()));
  page_data_.resize(pages_.size());
}

/// Replaces a shared page by a copy.
void Sequence::own_page(std::size_t index) {
  const KvPool::PageId copy = pool_->take_page();
  std::memcpy(pool_->data(copy), page_data_[index], static_cast<std::size_t>(pool_->page_bytes_));
  pool_->release(pages_[index]);
  pages_[index] = copy;
  page_data_[index] = pool_->data(copy);
}

void Sequence::ensure(std::int64_t positions) {
  if (positions <= size_) return;
  require(pool_ != nullptr, ErrorKind::internal, "a sequence of no pool has no room");
  const std::size_t wanted = pages_of(positions);
  pages_.reserve(wanted);
  page_data_.reserve(wanted);
  const auto first = static_cast<std::size_t>(size_ / kPagePositions);
  for (std::size_t index = first; index < std::min(wanted, pages_.size()); ++index) {
    if (pool_->is_shared(pages_[index])) own_page(index);
  }
  while (pages_.size() < wanted) {
    pages_.push_back(pool_->take_page());
    page_data_.push_back(pool_->data(pages_.back()));
  }
}

std::int64_t Sequence::pages_needed(std::int64_t positions) const {
  if (positions <= size_) return 0;
  const std::size_t wanted = pages_of(positions);
  std::int64_t needed =
      std::max<std::int64_t>(0, static_cast<std::int64_t>(wanted) - std::ssize(pages_));
  const auto first = static_cast<std::size_t>(size_ / kPagePositions);
  for (std::size_t index = first; index < std::min(wanted, pages_.size()); ++index) {
    needed += pool_->is_shared(pages_[index]) ? 1 : 0;
  }
  return needed;
}

void Sequence::truncate(std::int64_t size) {
  require(size >= 0 && size <= size_, ErrorKind::internal,
          "a sequence of {} positions cannot be cut to {}", size_, size);
  if (size == size_) return;
  require(size == 0 || pool_->state_bytes_ == 0, ErrorKind::usage,
          "a sequence of {} positions cannot be cut to {}: layers of this model keep a state that "
          "cannot go back",
          size_, size);
  size_ = size;
  drop_pages_from(pages_of(size));
  if (size == 0) std::memset(states_.data(), 0, states_.size());
}

void Sequence::clear_state(std::int64_t layer) const {
  const KvPool::LayerPlace& place = pool_->places_[static_cast<std::size_t>(layer)];
  if (place.state_bytes == 0) return;
  std::memset(state(layer), 0, static_cast<std::size_t>(place.state_bytes));
}

std::int64_t Sequence::share_prefix(const Sequence& other, std::int64_t positions) {
  require(pool_ != nullptr && pool_ == other.pool_ && size_ == 0 && positions >= 0 &&
              positions <= other.size_,
          ErrorKind::internal, "{} of {} positions cannot be shared with a sequence of {}",
          positions, other.size_, size_);
  if (pool_->depends_on_length_ && prompt_length_ != other.prompt_length_) return 0;
  if (pool_->state_bytes_ > 0 && positions != other.size_) return 0;
  drop_pages_from(0);
  const std::size_t count = pages_of(positions);
  pages_.assign(other.pages_.begin(), other.pages_.begin() + static_cast<std::ptrdiff_t>(count));
  page_data_.assign(other.page_data_.begin(),
                    other.page_data_.begin() + static_cast<std::ptrdiff_t>(count));
  for (const KvPool::PageId page : pages_) pool_->share(page);
  if (states_.size() > 0) std::memcpy(states_.data(), other.states_.data(), states_.size());
  size_ = positions;
  return positions;
}

std::int64_t Sequence::bytes() const noexcept {
  return pool_ == nullptr ? 0 : pool_->state_bytes_ + std::ssize(pages_) * pool_->page_bytes_;
}

}  // namespace moesaic
