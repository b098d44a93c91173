#include "delta/spilled.h"

#include "file/replace_file.h"

namespace st::store {

void Spilled::begin_part() {
  size_ = 0;
  hasher_ = {};
}

Result<void> Spilled::add(std::span<const std::byte> bytes) {
  if (!made_) {
    ST_TRY(auto target, write::find_destination(env_, beside_));
    ST_TRY(made_, write::TemporaryFile::create(target.at, 0600));
  }
  ST_TRY(made_->file().may_reach(begin_ + size_ + bytes.size()));
  ST_TRY(made_->file().write(bytes.data(), bytes.size(), begin_ + size_));
  hasher_.add(bytes.data(), bytes.size());
  size_ += bytes.size();
  return {};
}

Spilled::Part Spilled::end_part() {
  const Part part{begin_, size_, hasher_.digest()};
  begin_ += size_;
  size_ = 0;
  return part;
}

}  // namespace st::store
