// How a transaction takes what a caller changes: payloads, into the journal or borrowed, and the catalogue that a
// publish makes. Takes no lock on the file.
#pragma once

#include "file/staged.h"

namespace st::store {

Result<void> stage_update(Staged &staged, std::string_view name, const NewBytes &value);
Result<void> stage_put(Staged &staged, std::string_view name, const NewBytes &value);
// Any other change, which makes a publish of it.
Result<void> stage_change(Staged &staged, Change change);
// A tensor's form, as the calls before left it.
std::optional<Form> form_of(const Staged &staged, const std::string &name);
// From now on a publish: what was staged for a patch is the first part of it. With
// a first change that is refused the patch stays one.
Result<void> make_publish(Staged &staged, const Change *first = nullptr);

// At commit. Staging may take hours, and something may clean up meanwhile: what was staged can still be read.
Result<void> restage_if_gone(Staged &staged);
// What was borrowed, into the journal. Status invalid_argument if it has changed since.
Result<void> stage_borrowed(Staged &staged, StagedTensor *tensor);
Result<void> stage_borrowed(Staged &staged);
Error changed_payload(std::string_view name);
// The path names another file by now, or the file has another header: the same values are staged there, if they still
// fit. Else status file_changed. To the state that the handle shows; or to one that a look has found, which it shows
// then. If that came too late nothing changes: see DataFile::adopt_found.
Result<void> follow_to(Staged &staged, HeldSnapshot shown);
Result<void> follow_to(Staged &staged, const DataFile::Look &look, std::unique_ptr<Snapshot> found);

}  // namespace st::store
