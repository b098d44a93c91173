#include "file/staged.h"

#include <algorithm>

namespace st::store {

Staged::Staged(DataFile &of, TransactionOptions with)
    : file(of), options(std::move(with)), made_in(of.env()), snapshot(of.hold()) {}

Staged::~Staged() {
  if (journal.journal && made_in.this_process()) return_journal();
}

Result<void> Staged::may_go_on() const {
  if (!made_in.this_process())
    return fail(Status::forked, "this transaction was begun by the parent process; begin another one here");
  if (file.poisoned())
    return fail(Status::poisoned, "an earlier write or sync of ", in_quotes(file.path()),
                " failed, so what was written may be lost; close the handle and open the file anew");
  if (failed) return fail(Status::txn_failed, "an earlier call of this transaction failed; abort it and begin another");
  return {};
}

bool Staged::publishes() const {
  const bool relays =
      options.compact || options.layout != write::Layout::keep || options.alignment != 0 || options.reserve != 0;
  return draft || relays;
}

void sort_by_offset(std::vector<write::Piece> *pieces) {
  const auto before = [](const write::Piece &a, const write::Piece &b) { return a.offset < b.offset; };
  if (!std::is_sorted(pieces->begin(), pieces->end(), before)) std::sort(pieces->begin(), pieces->end(), before);
}

std::vector<write::Piece> Staged::pieces() const {
  std::vector<write::Piece> pieces = slice_pieces;
  pieces.insert(pieces.end(), remade.begin(), remade.end());
  for (const StagedTensor &t : tensors) pieces.push_back(t.piece);
  sort_by_offset(&pieces);
  return pieces;
}

Result<void> Staged::need_journal() {
  if (journal.journal) return {};
  ST_TRY(journal, with_room([this] { return file.journals().take(); }));
  if (!file.options().descriptors) journal.journal->keep_own_bytes();
  journal_start = journal.journal->bytes_written();
  return {};
}

void Staged::return_journal() {
  if (journal.journal->committed()) {
    file.poison();
    journal.journal.reset();
  } else {
    file.journals().give_back(std::move(journal));
  }
}

}  // namespace st::store
