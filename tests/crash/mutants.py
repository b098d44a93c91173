#!/usr/bin/env python3
"""Sync mutants: is every sync, hash, bound and order in the write path needed,
and would a test notice if it went missing?

Each mutant changes one place of a copy of the sources, rebuilds, and runs the
suites; a mutant that no suite notices has survived, which fails the run. Prints
a table. Nothing is run if the text of any mutant is no longer in the sources, so
that the list stays true.

    python3 tests/crash/mutants.py [--quick] [--only WORD] [--list] [--build DIR]

--quick: eight syncs and orders, and the two suites that know most about them;
what tests/run.sh runs. All eight are compiled into one program, which does as the
sources say until ST_MUTANT wakes one of them. --list: prints them, and runs nothing.
"""

import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUITES = [
    "crash_enumeration",
    "failing_calls",
    "layout_crash",
    "save_crash",
    "delta_crash",
    "shards_crash",
    "journal_gone",
    "second_writer",
    "cluster",
    "unit_os",
    "unit_newfile",
    "unit_journal",
    "unit_file",
    "unit_shards",
    "unit_delta",
    "unit_engine",
    "encounters",
    "unit_remote",  # for core/remote alone, which no other sees
]
QUICK_SUITES = SUITES[:2]


@dataclasses.dataclass
class Mutant:
    name: str
    file: str
    old: str
    new: str
    quick: bool = False  # one of those that CI tries: it changes whole statements
    rule: str = ""  # the variant of tests/model/hosts.pml that lacks the same


JOURNAL = "core/journal/journal.cpp"
RECOVER = "core/journal/recover.cpp"
SUPER_RECOVER = "core/journal/super_recover.cpp"
HOT_JOURNAL = "core/journal/hot_journal.cpp"
NAMED_LOCK = "core/os/named_lock.cpp"
RANGE_LOCK_H = "core/os/range_lock.h"
TURNSTILE = "core/os/turnstile.cpp"
SHARDS = "core/shards/shard_transaction.cpp"
SHARDS_COMMIT = "core/shards/shard_commit.cpp"
PARTICIPANT = "core/file/participant.cpp"
NEW_NAMES = "core/shards/new_names.cpp"
OLD_SHARDS = "core/shards/old_shards.cpp"
PATCH = "core/journal/patch.cpp"
PIECES = "core/journal/pieces.cpp"
UNDO = "core/journal/undo.cpp"
MOVE_ASIDE = "core/journal/move_aside.cpp"
WRITE_OUT = "core/newfile/write_out.cpp"
FOLDER = "core/journal/journal_folder.cpp"
FOLDER_H = "core/journal/journal_folder.h"
RIGHTS = "core/journal/rights.cpp"
CLAIM = "core/journal/claim.cpp"
PAST_CACHE = "core/os/past_cache.cpp"
LAYOUT = "core/journal/journal_layout.cpp"
MANIFEST = "core/journal/manifest.cpp"
TRANSACTION = "core/file/transaction.cpp"
SLICES = "core/file/slices.cpp"
TEMPORARY_FILE = "core/newfile/temporary_file.cpp"
RENAME_INTO_PLACE = "core/newfile/rename_into_place.cpp"
LOCATION = "core/os/location.cpp"
NAMES = "core/newfile/names.cpp"
STAGED = "core/file/staged.cpp"
STAGING = "core/file/staging.cpp"
COMMIT_LOCK = "core/file/commit_lock.cpp"
DEFERRED = "core/file/deferred.cpp"
PATCH_COMMIT = "core/file/patch_commit.cpp"
REWRITE = "core/file/rewrite_commit.cpp"
DATA_OFFSET = "core/newfile/data_offset.cpp"
TRANSFER = "core/newfile/transfer.cpp"
REPLACE_FILE = "core/file/replace_file.cpp"
DELTA_PATCH = "core/delta/delta_patch.cpp"
DELTA_CHAIN = "core/delta/delta_chain.cpp"
OVERLAY = "core/delta/overlay.cpp"
JUDGE = "core/remote/judge.cpp"
PULL = "core/remote/pull.cpp"
PACE = "core/remote/pace.cpp"
CHECKSUM = "core/remote/checksum.cpp"
JOURNAL_PLAN_H = "core/journal/journal_plan.h"
LAYOUT_H = "core/journal/journal_layout.h"

SYNC_PAYLOAD = (
    "  if (!record_.has_one_flush()) ST_TRY(record_.is_undo() ? file_.sync() : file_.sync_data());\n"
    "  if (name_durable_) return {};"
)
SYNC_JOURNAL = (
    "  if (auto synced = journal.sync_payload(dir, control); !synced) return not_begun(std::move(synced.error()));\n"
)
COMMIT_THERE = "  ST_TRY(commit_there(journal, ask.is_there, !undo));\n"
SYNC_DATA = "  if (auto synced = data.sync_data(); !synced) return Failed({std::move(synced.error()), true, true});\n"

# fmt: off
MUTANTS = [
    # syncs
    Mutant("hosts: a shared file read through the cache", PAST_CACHE, "  file->read_past_cache(how);\n", "", rule="STALE_READ"),
    Mutant("hosts: journals read through the cache", FOLDER_H,
           " journal->read_like(dir_); ", " static_cast<void>(journal); ", rule="STALE_LOOK"),
    Mutant("hosts: NFS is not asked for the folder", PAST_CACHE, "  env.fstat_synced(folder, &now);\n", ""),
    Mutant("hosts: what gives its name away has no second one", "core/os/rename_over.cpp",
           "replaces_in_two_steps(type) ? second_name(to.name(), temporary) : std::string();", "std::string();"),
    Mutant("hosts: SMB replaces what is open", "core/os/rename_over.cpp",
           "  const bool moves = removes_what_it_cannot_replace(type);", "  const bool moves = false;"),
    Mutant("hosts: a dead writer's second name is a hard link", "core/os/rename_over.cpp",
           "same_inode(named, other))", "!same_inode(named, other))"),
    Mutant("hosts: a living replacement is not awaited", "core/os/rename_over.cpp",
           "  if (!lock && lock.error().status != Status::lock_unsupported) return Failure(std::move(lock.error()));\n", ""),
    Mutant("hosts: what has gone by its writer's hand is given back", "core/os/rename_over.cpp",
           " && is_amid(*listed, name);\n  });", ";\n  });"),
    Mutant("hosts: a server that does not answer has the old file's name", "core/os/rename_over.cpp",
           "    if (there < 0) return r;\n", "    if (there == -ENOENT) return r;\n"),
    Mutant("hosts: what finds the old file is removed", "core/newfile/rename_into_place.cpp", "  if (needed) {\n    leave();\n",
           "  if (needed) {\n"),
    Mutant("hosts: what SMB cannot move is replaced", "core/os/rename_over.cpp", "return -ENAMETOOLONG;", "second.clear();"),
    Mutant("hosts: a name that is remembered is believed to be there", "core/newfile/temporary_file.cpp",
           "    target.renew();", "    "),
    Mutant("hosts: who may not write gives back what a living writer moves", "core/os/rename_over.cpp",
           "  return *writes ? std::move(file) : old.open(O_RDONLY | flags);", "  return file;"),
    Mutant("hosts: what NFS keeps aside is renamed", CLAIM, " || r == -EBUSY) return false;", ") return false;"),
    Mutant("hosts: names believed from the cache", PAST_CACHE, "  renew_name(env(), dir(), name_);\n", ""),
    Mutant("hosts: bytes locked, not pages", "core/os/range_lock.cpp",
           "  if (!exclusive || !file.reads_past_cache() || file.writes_past_cache()) return ranges;\n", "  if (!exclusive || !ranges.empty()) return ranges;\n", rule="BYTE_LOCKS"),
    Mutant("hosts: what the cache writes by pages is locked by bytes", PAST_CACHE, "  return writes_ == Writes::past_cache;\n", "  return true;\n"),
    Mutant("hosts: a long read believes what a client has read ahead", PAST_CACHE,
           "  const int fd = open_becoming_direct();\n", "  const int fd = *direct();\n"),
    Mutant("hosts: a descriptor is closed between a write and its sync", PAST_CACHE, " && !unsynced_) {", ") {"),
    Mutant("hosts: a publish copies what the kernel remembers", TRANSFER, " && !from.reads_past_cache()", ""),
    Mutant("hosts: what another host took is staged anew under lost locks", STAGING,
           "staged.journal.journal->file().reads_past_cache() || ", ""),
    Mutant("hosts: a refresh believes the cache", "core/file/data_file.cpp", "look(true, lock_timeout_ms)", "look(false, lock_timeout_ms)"),
    Mutant("hosts: a client is asked through a descriptor that it has read for before", PAST_CACHE,
           "const bool anew = past_cache_ == PastCache::anew;", "const bool anew = false;"),
    Mutant("hosts: a reader that met a hot journal believes the cache", "core/file/data_file.cpp",
           "follows || met == Met::hot", "follows"),
    Mutant("hosts: a journal is asked for by a name that is remembered", CLAIM,
           "  if (opened.reads_past_cache()) os::renew_name(env, folder, name);\n", "", rule="NO_FENCE"),
    Mutant("hosts: a journal is acted on under its writer's name", CLAIM,
           "  if (!dir.reads_past_cache() || !found.file) return true;\n", "  if (found.size < UINT64_MAX) return true;\n", rule="NOT_CLAIMED"),
    Mutant("hosts: a claimed journal of several files is not found", CLAIM,
           "  if (!folder.dir().reads_past_cache()) return looked;\n", "  if (data.st_size >= 0) return looked;\n"),
    Mutant("hosts: a super-journal without a record stays under its writer's name", SUPER_RECOVER,
           "  if (!dir.reads_past_cache()) return stay_empty(super);\n", "  if (dir.fd() >= 0) return stay_empty(super);\n"),
    Mutant("hosts: recovery leaves a journal that was locked once more", HOT_JOURNAL,
           "  if (!lock && !found.file.reads_past_cache()) return false;\n", "  if (!lock) return false;\n"),
    Mutant("hosts: a commit does not look for its new files before it is decided", "core/file/participant.cpp",
           "    if (*made) ST_TRY((*made)->replacement->check_is_there());\n", "    static_cast<void>(made);\n"),
    Mutant("hosts: a long write asks nothing on its way", "core/journal/still_ours.h", ">= old_ms ? ask()", ">= old_ms + UINT64_MAX / 2 ? ask()"),
    Mutant("hosts: a journal is not read once more when it was claimed", CLAIM, "  ST_TRY(read_state(found));\n", ""),
    Mutant("hosts: what committed while it was claimed is emptied", HOT_JOURNAL, "    if (found.waits()) return false;\n    if (ours)", "    if (ours)", rule="READ_BEFORE"),
    Mutant("hosts: a recoverer does not ask before it applies", RECOVER, "  ST_TRY(still.ask());\n", ""),
    Mutant("hosts: a writer does not ask between its record and its data", PATCH,
           "  if (auto found = there(); !found) {\n    // Another", "  if (auto found = there(); false) {\n    // Another", rule="NO_CHECK_AFTER"),
    Mutant("hosts: a record that another has claimed is taken back", PATCH,
           "const bool stands = journal.file().reads_past_cache() || journal", "const bool stands = journal", rule="TAKEN_BACK"),
    Mutant("hosts: a parked journal is used again without a question", FOLDER,
           "    if (taken.journal && check_beside(taken)) return taken;\n", "    if (taken.journal) return taken;\n", rule="REUSED_BLINDLY"),
    Mutant("hosts: a size is believed from the cache", "core/os/file.cpp", "reads_past_cache() ? env_->fstat_synced(fd_, &s)", "reads_past_cache() ? env_->fstat(fd_, &s)"),
    Mutant("hosts: a folder of journals is believed from the cache", FOLDER, "  if (how != os::PastCache::no) at.renew();\n", ""),
    Mutant("hosts: what leads elsewhere by now is not looked at again", NAMED_LOCK, "    if (!replaced) return locked;\n", "    static_cast<void>(replaced);\n    return locked;\n"),
    Mutant("hosts: a journal does not tell before its record whose bytes it is on", JOURNAL,
           "  if (file_.reads_past_cache()) ST_TRY(announce());\n", ""),
    Mutant("hosts: a journal that was locked once more is left to its writer", HOT_JOURNAL,
           "if (held == Holder::writer && !on_ours && found.size > 0) {", "if (held == Holder::writer && (on_ours || found.size > 0)) {"),
    Mutant("hosts: what a parked journal said is taken for what it is locked for now", HOT_JOURNAL,
           "  if (locked == os::Locked::exclusive && found.file.reads_past_cache()) ST_TRY(read_state(found));\n", ""),
    Mutant("hosts: a reader drops an empty journal though its writer may come back", RECOVER,
           "  if (folder.dir().reads_past_cache()) return dropped;\n", ""),
    Mutant("a journal counts for what it was before its writer was gone", HOT_JOURNAL,
           "  if (locked == os::Locked::no) ST_TRY(read_state(found));\n", ""),
    Mutant("a reader drops what a writer is filling", RECOVER,
           "held != Holder::nobody || looked->state != JournalState::empty", "looked->state != JournalState::empty"),
    Mutant("hosts: an empty journal is taken though its maker is about to lock it", HOT_JOURNAL,
           "    ST_TRY(auto locked, lock_empty(found, &held, &lock));\n", "    const bool locked = lock_empty != nullptr;\n"),
    Mutant("hosts: a journal is unlinked before its last name is durable", HOT_JOURNAL,
           "  ST_TRY(folder.dir().sync());\n  drop(folder, gone);\n", "  drop(folder, gone);\n", rule="GONE_UNSYNCED"),
    Mutant("hosts: what is dropped is unlinked by the name that is looked at", HOT_JOURNAL,
           "  if (!folder.dir().reads_past_cache()) {\n    drop(folder, name);\n", "  if (!name.empty()) {\n    drop(folder, name);\n", rule="UNLINKED_AT_ONCE"),
    Mutant("hosts: what is dropped is taken for a live one", FOLDER,
           "  return name.ends_with(gone_suffix) && ", "  return name.empty() && ", rule="GONE_LOOKED_AT"),
    Mutant("hosts: what another was dropping is unlinked before its last name is durable", HOT_JOURNAL,
           "  ST_TRY(folder.dir().sync());  // the one that gave the name may have died before\n", ""),
    Mutant("hosts: a recoverer does not ask whether what it locked has its name", RECOVER, "  ST_TRY(check_named(file_, data));\n", ""),
    Mutant("hosts: a decision is held against an index that has lost its name", SUPER_RECOVER,
           "  ST_TRY(check_named(index_, index));\n", ""),
    Mutant("hosts: a file that was replaced before a journal was taken is changed", COMMIT_LOCK,
           "    if (replaced) return write::Look::again;\n", "    static_cast<void>(replaced);\n", rule="REPLACED_UNSEEN"),
    Mutant("hosts: the index that this kernel remembers is taken for the one that stands", SHARDS,
           "if (std::any_of(changed.begin(), changed.end(), is_shared)) shards_.location().renew();", "static_cast<void>(is_shared);"),
    Mutant("hosts: a commit under new names has no journal", SHARDS_COMMIT,
           "  if (work_.grace_s)\n    for (const auto &part : parts_) ST_TRY(part->raise_fence());\n", ""),
    Mutant("hosts: a commit under new names does not look for its journals", NEW_NAMES,
           "  for (const auto &part : parts_) ST_TRY(part->check_fence());\n", ""),
    Mutant("hosts: the new index of a host that lost its locks stays beside shards that go", OLD_SHARDS,
           "  write::TemporaryFile::remove_stale(index_, {write::undecided_infix});\n"
           "  if (write::TemporaryFile::is_any(index_, write::undecided_infix)) return false;\n", ""),
    Mutant("hosts: a shard is missed by the index that this kernel remembers", "core/shards/shards.cpp",
           "  if (!sources_ && at_.has_other_hosts(index)) at_.renew();\n", "  static_cast<void>(index);\n"),
    Mutant("hosts: a save has no journal", REPLACE_FILE, "    ST_TRY(fence_->raise(s));\n", ""),
    Mutant("hosts: a save does not look for its journal before it takes the name", REPLACE_FILE,
           "    if (!moved_ && old_.locked) return fence_->stands();\n", ""),
    Mutant("a save does not look again at a file that it could not lock", REPLACE_FILE,
           "target_.was_replaced(*old)", "old_.locked ? target_.was_replaced(*old) : Result<bool>(false)"),
    Mutant("a save forgets whose rights the new file has", REPLACE_FILE, "    made_.note_as_new(false);\n", ""),
    Mutant("hosts: a publish does not look for its journal before it takes the name", REWRITE,
           "staged.has_other_hosts() ? staged.check_journal_is_there() : Result<void>()", "Result<void>()", rule="RENAMED_UNASKED"),
    Mutant("no sync of the payload", JOURNAL, SYNC_PAYLOAD,
           "if (record_.is_undo())\n    ST_TRY(file_.sync());\n  if (name_durable_) return {};", quick=True),
    Mutant("no sync of the journal's folder", JOURNAL, "  ST_TRY(dir.sync());\n", "  static_cast<void>(dir);\n"),
    Mutant("no sync of the commit record", JOURNAL,
           "  ST_TRY(file_.write(block.data(), block.size(), 0));\n  return file_.sync_data();",
           "  return file_.write(block.data(), block.size(), 0);", quick=True),
    Mutant("no sync of the changed file", PATCH, SYNC_DATA, "if (undo) {\n" + SYNC_DATA + "}", quick=True),
    Mutant("no sync of the emptied journal", JOURNAL, "  if (emptied) emptied = file_.sync_data();\n", "", quick=True),
    Mutant("no sync of the folder that holds the journal folder", FOLDER,
           "  ST_TRY(file.folder()->sync());\n", ""),
    Mutant("recovery leaves a committed journal that it may not write", HOT_JOURNAL,
           "(*looked)->waits()) return Failure", "(*looked)->waits() && path.empty()) return Failure"),
    Mutant("recovery leaves a committed journal beside a file that it may not write", RECOVER,
           "return journals.committed ? Failure", "return journals.committed && path.empty() ? Failure"),
    Mutant("recovery takes any journal that it may not write for a committed one", HOT_JOURNAL,
           "if (looked && *looked && (*looked)->waits()) return", "if (looked && *looked) return"),
    Mutant("recovery passes over a stranger's committed journal", RECOVER,
           "trusted.error().status == Status::journal && all_rest(file_)", "trusted.error().status == Status::journal"),
    Mutant("recovery does not sync the file", HOT_JOURNAL, "  return data_.sync_data();", "  return {};"),
    Mutant("recovery carries out a record that is not durable", RECOVER, "  ST_TRY(replay.confirm());\n", ""),
    Mutant("recovery does not sync the emptied journal", HOT_JOURNAL,
           "  return hot.file.sync_data();", "  return {};"),
    # steps
    Mutant("the journal is not emptied", JOURNAL, "  return file_.write(zeros, sizeof zeros, 0);\n", "  static_cast<void>(zeros);\n  return {};\n"),
    Mutant("recovery does not empty the journal", HOT_JOURNAL,
           "  ST_TRY(hot.file.write(zeros, sizeof zeros, 0));\n", "  static_cast<void>(zeros);\n"),
    Mutant("a failed sync does not poison", PATCH_COMMIT,
           "    if (failure.sync_failed || failure.open_outcome) staged.file.poison();\n", ""),
    Mutant("a journal of open outcome is taken back", STAGED,
           "  if (journal.journal->committed()) {\n", "  if (false) {\n"),
    # order
    Mutant("commit before the payload is durable", PATCH, SYNC_JOURNAL, "if (undo) {\n" + SYNC_JOURNAL + "}"),
    Mutant("the file is written before commit", PATCH, COMMIT_THERE,
           "  if (!undo) {\n  if (auto early = write_pieces(data, journal, pieces, buffer, ours); !early) return Failed({std::move(early.error()), false, true});\n}\n" + COMMIT_THERE),
    Mutant("the journal is emptied before the file is written", PATCH,
           "  if (auto written = write_pieces", "  if (!undo) {\n  if (auto early = journal.invalidate(); !early) return Failed({std::move(early.error()), true, true});\n}\n  if (auto written = write_pieces"),
    Mutant("a journal of open outcome is unlocked after the tensors", PATCH_COMMIT,
           "    if (!done && staged.journal.journal->committed()) staged.return_journal();\n", ""),
    # two flushes
    Mutant("two flushes: the journal's name is durable after the record", PATCH, SYNC_JOURNAL,
           "if (flushes == Flushes::two) {\n  if (auto early = commit_there(journal, ask.is_there, !undo); !early) return early;\n}\n" + SYNC_JOURNAL),
    Mutant("two flushes: the zeros are not written out", JOURNAL, "  ST_TRY(file_.write_out(0, sector_bytes));\n", ""),
    Mutant("two flushes: the journal looks parked before the zeros are written out", JOURNAL,
           "  ST_TRY(file_.write_out(0, sector_bytes));\n  settle(true);\n", "  settle(true);\n  ST_TRY(file_.write_out(0, sector_bytes));\n"),
    Mutant("two flushes: zeros that the device did not take are forgotten", "core/os/file.cpp",
           "  if (is_missing(r) || r == -ESPIPE) return sync_data();\n  if (r < 0) return Failure(error(-r, \"sync\"));\n",
           "  if (is_missing(r) || r == -ESPIPE) return sync_data();\n"),
    Mutant("two flushes: zeros that cannot be written out stay in memory", "core/os/file.cpp",
           "r == -ESPIPE) return sync_data();\n", "r == -ESPIPE) return {};\n"),
    Mutant("two flushes: a record that is taken back is not durably empty", "core/journal/journal.h",
           "return !invalidate();", "return !retire();"),
    Mutant("two flushes: on any storage", "core/journal/redo_or_undo.h", "filesystem.syncs_flush_all &&", "(filesystem.syncs_flush_all || true) &&"),
    Mutant("two flushes: on an xfs of two devices", "core/os/filesystem.cpp", "== 0 && realtime == 0)", "== 0)"),
    Mutant("two flushes: the journal on another filesystem", "core/journal/journal.cpp", "s.st_dev == data.st_dev", "true"),
    Mutant("two flushes: recovery in one round", RECOVER, "  if (round == Round::finished && !may_be_finished) return {};\n", "  if (round == Round::finished || !may_be_finished) {\n  if (round == Round::finished) return {};\n}\n"),
    Mutant("two flushes: recovery drops what it finds finished", RECOVER, "if (hot.verdict.is_good() && replay.is_torn()) {",
           "if (hot.verdict.is_good() && (replay.is_torn() || replay.is_finished())) {"),
    Mutant("two flushes: recovery writes the record once more, and not the rest", HOT_JOURNAL,
           "  if (hot_.record.has_one_flush()) {\n    const uint64_t list", "  if (false) {\n    const uint64_t list"),
    Mutant("two flushes: a torn journal is damage", HOT_JOURNAL, "  if (verdict && is_torn()) return judge_torn();\n", ""),
    Mutant("two flushes: a torn journal is dropped beside a mix", HOT_JOURNAL, "if (!verdict.is_good() || is_old || is_new) return verdict;", "if (!verdict.is_good() || !is_old || !is_new) return verdict;"),
    Mutant("any torn journal is dropped", "core/journal/hot_journal.h", "return is_torn_ && hot_.record.has_one_flush();", "return is_torn_;"),
    # undo records: syncs, steps and order
    Mutant("undo: no sync of the old bytes", JOURNAL, SYNC_PAYLOAD,
           "if (!record_.has_one_flush() && !record_.is_undo())\n    ST_TRY(file_.sync_data());\n  if (name_durable_) return {};", quick=True),
    Mutant("undo: the record before the old bytes are durable", PATCH, SYNC_JOURNAL, "if (!undo) {\n" + SYNC_JOURNAL + "}"),
    Mutant("undo: the file is written before the record", PATCH, COMMIT_THERE,
           "  if (undo) {\n  if (auto early = write_pieces(data, journal, pieces, buffer, ours); !early) return Failed({std::move(early.error()), false, true});\n}\n" + COMMIT_THERE, quick=True),
    Mutant("undo: no sync of the changed file", PATCH, SYNC_DATA, "if (!undo) {\n" + SYNC_DATA + "}", quick=True),
    Mutant("undo: the journal is emptied before the file is durable", PATCH,
           "  // 8. What a failed sync has left", "  if (undo) {\n  if (auto early = journal.invalidate(); !early) return Failed({std::move(early.error()), true, true});\n}\n  // 8. What a failed sync has left", quick=True),
    Mutant("undo: an error is not rolled back", PATCH,
           "    PatchFailure failure = back(std::move(written.error()));\n",
           "    PatchFailure failure{std::move(written.error()), false, false};\n"),
    Mutant("undo: what was rolled back is not synced", UNDO, "if (!data.sync_data() || !journal.invalidate())", "if (!journal.invalidate())"),
    Mutant("undo: the journal stays after rolling back", UNDO, "if (!data.sync_data() || !journal.invalidate())", "if (!data.sync_data())"),
    Mutant("undo: a failed rolling back is taken for one", UNDO,
           "    if (!put_back(data, journal.file(), range, buffer)) return {std::move(cause), true, true};", "    static_cast<void>(put_back(data, journal.file(), range, buffer));"),
    Mutant("undo: a failed sync of the file is rolled back, not left to recovery", PATCH, SYNC_DATA,
           "if (auto synced = data.sync_data(); !synced) return Failed(undo ? roll_back(data, journal, ranges, buffer.bytes.get(), std::move(synced.error())) : PatchFailure{std::move(synced.error()), true, true});"),
    Mutant("undo: a record that was not emptied durably stays away", JOURNAL,
           "    if (record_.is_undo()) static_cast<void>(file_.write(block.data(), block.size(), 0));\n", "    static_cast<void>(block);\n"),
    Mutant("undo: a failed share is not made up for by copying", UNDO,
           "    return copy_payload(data, journal, range, range.offset, end, buffer);\n  ST_TRY(", "    return {};\n  ST_TRY("),
    Mutant("undo: the edges are not put back", UNDO, "return copy_payload(data, journal, range, whole.end, end, buffer);", "return {};"),
    # undo records: hashes, bounds, choice
    Mutant("undo: the old bytes have no hash", JOURNAL, "    saved->hasher.add(buffer.get(), n);\n", ""),
    Mutant("undo: recovery takes the record for a redo record's", LAYOUT_H, "return (flags & undo_record) != 0;", "return false;"),
    Mutant("undo: old and new are mixed up", HOT_JOURNAL, "is_old = is_undo ? is_payload : is_hashed, is_new = is_undo ? is_hashed : is_payload;",
           "is_old = is_hashed, is_new = is_payload;"),
    Mutant("flags of a version to come are believed", LAYOUT, "(but_sparse & ~one_flush_record) == 0", "true"),
    Mutant("undo: a block of the neighbour before is shared", JOURNAL_PLAN_H, "begin(round_up(offset, block))", "begin(round_down(offset, block))"),
    Mutant("undo: a block of the neighbour behind is shared", JOURNAL_PLAN_H, "end(round_down(offset + length, block))", "end(round_up(offset + length, block))"),
    Mutant("undo: hashes of other sectors are believed", "core/journal/pieces.h", "table.fits(offset)", "true"),
    Mutant("a commit does not look for the room that its plan names", TRANSACTION,
           "  const auto has_room = [&] { return check_room(staged_, lock.file(), plan); };\n", "  const auto has_room = [] { return Result<void>(); };\n"),
    Mutant("shards: a commit does not look for the room that its plan names", SHARDS_COMMIT, "    ST_TRY(check_room());\n", ""),
    Mutant("undo: room for copies is not looked for", PATCH_COMMIT,
           "return write::room_with_metadata(staged.snapshot->filesystem.type, room) <= write::room_of(data).free;", "return true;"),
    Mutant("undo: what the caller may free at once is borrowed", STAGING, "may_borrow = !staged.options.copy && ", "may_borrow = "),
    Mutant("undo: a refusal is not remembered", PATCH_COMMIT, "    if (write::refuses_to_share(e)) staged.file.never_undo();\n", ""),
    # payloads
    Mutant("small payloads in a row are not compared with what was staged", PIECES, "if (hash64(bytes, piece.payload.length) != piece.payload.hash)", "if (false)"),
    Mutant("small pieces with a gap between them are read and written as one", PIECES, " && place(pieces[i]) == begin + length", ""),
    Mutant("old bytes that were read for other tensors are hashed", "core/journal/old_bytes.h", "if (at < begin_ || at + n > begin_ + held_)", "if (held_ == 0)"),
    Mutant("a payload is not compared with what was staged", PIECES, "if (done + n == piece_.payload.length && hasher_.digest() != piece_.payload.hash)", "if (false)"),
    Mutant("a payload is hashed in the caller's memory", JOURNAL, "    hasher.add(buffer.get(), take);\n", "    hasher.add(from, take);\n"),
    Mutant("a publish does not compare what was staged", REWRITE, "  ST_TRY(check_payloads(staged, file, plan));\n", ""),
    Mutant("undo: a payload is not compared with what was noted", PIECES,
           "  if (!same) return fail(Status::invalid_argument, \"the new bytes changed between staging and commit\");\n", ""),
    Mutant("undo: a payload is written before it is compared", PIECES, "  ST_TRY(auto same, journal.was_noted(piece.table, done,",
           "  ST_TRY(data.write(buffer.bytes.get(), n, piece.offset + done));\n  ST_TRY(auto same, journal.was_noted(piece.table, done,"),
    Mutant("undo: a payload that changed with the file is not tried again", PATCH_COMMIT, "if (applied || !applied.error().payload_changed) return applied;", "return applied;"),
    Mutant("undo: a view of the same handle is borrowed", STAGING, " && !is_view(staged, value);", ";"),
    Mutant("what was borrowed is staged without a comparison", STAGING, "  if (!same) return Failure(changed_payload(t->name));\n", ""),
    # hashes
    Mutant("the commit record's hash is not checked", LAYOUT,
           "  if (load_u64le(sector.data() + record_bytes) != hash64(sector.data(), record_bytes)) return JournalState::damaged;\n", ""),
    Mutant("the manifest's hash is not checked", MANIFEST, "if (hasher.digest() != record_.manifest_hash)", "if (false)"),
    Mutant("a list of ranges is taken into memory as a whole", MANIFEST, "constexpr uint64_t window = 1024;", "constexpr uint64_t window = uint64_t{1} << 50;"),
    Mutant("the payload's hash is not checked", HOT_JOURNAL, "if (payload_hash.digest() != range.payload_hash)", "if (false)"),
    Mutant("the table's hash is not checked", HOT_JOURNAL, "if (table_hash.digest() != range.sectors_hash)", "if (false)"),
    Mutant("old bytes are not checked", HOT_JOURNAL, "if (!is_new && !is_old && sectors->is_good())", "if (false)"),
    Mutant("the file's identity is not checked", HOT_JOURNAL, "if (identity != record.identity)", "if (false)"),
    Mutant("the header is no part of the identity", "core/journal/identity.cpp", "  id.header_hash = hasher.digest();", "  id.header_hash = 0;"),
    # bounds and trust
    Mutant("ranges may lie outside the data", LAYOUT, "if (r.length == 0 || !inside(r.offset, r.length, end_of_last_, end_of_data_))", "if (false)"),
    Mutant("payloads may lie outside the journal", LAYOUT, "if (!inside(r.payload, r.payload_bytes(), header_bytes, journal_bytes_))", "if (false)"),
    Mutant("tables may lie outside the journal", LAYOUT,
           "if (!inside(r.sectors, r.tables_bytes(), header_bytes, journal_bytes_))", "if (false)"),
    Mutant("the manifest may lie outside the journal", MANIFEST,
           "      n * each > journal_bytes_ - record_.manifest)", "      false)"),
    Mutant("a journal with a second link is trusted", HOT_JOURNAL, "s.st_nlink > 1;", "false;"),
    Mutant("a journal with a second link is taken from who holds it", HOT_JOURNAL, "if (!held || *held == os::Locked::no) {", "if (!held || true) {"),
    Mutant("a link instead of a journal is followed", HOT_JOURNAL, '!S_ISREG(s.st_mode)     ? "it', 'false ? "it'),
    Mutant("what has no journal's name is emptied", HOT_JOURNAL, "!may_be_journal(name) ?", "false ?"),
    Mutant("a forged part empties a living writer's journal", HOT_JOURNAL, "*held != Holder::nobody ? sync_for(found)", "false ? sync_for(found)"),
    Mutant("what takes a journal's name before it is opened is believed", HOT_JOURNAL, "  if (!os::same_inode(opened, s)) return LedTo::exchanged;\n", ""),
    Mutant("rights are those of whatever has the name by then", RIGHTS,
           "  if (!os::same_inode(*now, data)) return rights_of_another(*now, *acl, data);\n", ""),
    Mutant("shards: who decides for the index decides for any shard", "core/journal/roll_forward.cpp",
           "if (may.is_good() || (shard.journal", "if (true || (shard.journal"),
    Mutant("shards: any file with the name of a new one is it", "core/journal/roll_forward.cpp",
           "temporary.verdict = may_be_new(seen, old);", "temporary.verdict = Verdict::good();"),
    Mutant("shards: a new file that may not be trusted counts as placed", "core/journal/roll_forward.cpp",
           "    if (temporary.is_there && !temporary.opened && form == *reached)\n", "    if (false)\n"),
    Mutant("shards: a list may name files of others", "core/shards/old_shards.cpp",
           "maker_may_unlink_ || maker_ == index_.env().geteuid() || maker_ == file.st_uid", "true"),
    Mutant("shards: who may write to an index has files of others removed", "core/shards/old_shards.cpp",
           "(modes & S_IWOTH) == 0 || anybody_may_remove", "(modes & 0) == 0 || anybody_may_remove"),
    Mutant("anybody's journal is trusted", FOLDER, "  if (s.st_uid != self && s.st_uid != data.st_uid && s.st_uid != 0)\n", "  if (false)\n"),
    Mutant("the mask of an ACL is taken for the group's right", RIGHTS,
           "    if (e.tag == AclEntry::owning_group) rights->group = may;\n", ""),
    Mutant("a journal keeps the ACL that its folder gave", RIGHTS, "  if (given->empty()) return true;\n", "  return true;\n"),
    Mutant("a journal that anybody may write is trusted", FOLDER, "if (s.st_mode & ~data.st_mode & S_IWOTH) return", "if (false) return"),
    Mutant("a link in the place of a file is followed", LOCATION, "flags | (nameless_ ? 0 : O_NOFOLLOW), mode", "flags, mode"),
    Mutant("a link that takes a file's place while it is locked is taken for it", LOCATION,
           "out, nameless_ ? 0 : AT_SYMLINK_NOFOLLOW)", "out, 0)"),
    Mutant("a path that no longer leads to its file is believed", LOCATION, "  if (led) return {};\n", "  return {};\n"),
    Mutant("a save does not ask once more where its path leads", RENAME_INTO_PLACE,
           "  if (auto led = target_.check_led_to(); !led) return Failed({std::move(led.error()), false});\n", ""),
    Mutant("a publish takes the name of whatever stands there by then", REWRITE,
           "    ST_TRY(check_in_place(staged, lock));\n    return staged.has_other_hosts()", "    return staged.has_other_hosts()"),
    Mutant("shards: nobody asks once more where the paths lead", SHARDS_COMMIT,
           "  ST_TRY(check_in_place());\n", ""),
    Mutant("whatever begins like a temporary is one", NAMES, " || name.size() != prefix.size() + digits) return false;\n",
           ") return false;\n  return true;\n"),
    Mutant("long names are cut and not told apart", NAMES, "hexadecimal(hash64(file.data(), file.size()))", "hexadecimal(0)"),
    Mutant("shards: what is no file is taken for a shard", "core/os/location.cpp", "if (!S_ISREG(s.st_mode)) return Failure(", "if (false) return Failure("),
    Mutant("shards: a list that names a file twice is believed", "core/journal/super_journal.cpp",
           "if (names_one_twice(list))", "if (names_one_twice(list) && false)"),
    # locks
    Mutant("nothing is locked", NAMED_LOCK,
           "    auto had = turnstile.lock(locked->file, std::move(pages), wait, &locked->lock);", "    Result<bool> had = true;"),
    Mutant("a dying writer's journal is synced, but not made dirty", HOT_JOURNAL,
           " ST_TRY(found.file.write(&zero, 1, sector_bytes - 1));\n", " static_cast<void>(zero);\n"),
    Mutant("cleaning up drops journals that are being filled", HOT_JOURNAL,
           "  if (!lock && !found.file.reads_past_cache()) return false;\n  if (!lock) {", "  if (!lock && found.size == UINT64_MAX) {"),
    Mutant("a living writer's journal counts as an hot", RECOVER, "      if (held != Holder::nobody && !is_asked && (rests || !is_on(found, query.locked))) continue;\n", ""),
    Mutant("a dying writer's journal counts as a living one's", RECOVER, "if (held != Holder::nobody && !is_asked && (rests || !is_on(found, query.locked))) continue;", "if (held != Holder::nobody) continue;"),
    Mutant("a patch cuts the file inside sectors", PIECES,
           "up_to_sector(piece.offset + done, write_chunk_bytes, piece.payload.length - done)",
           "std::min(write_chunk_bytes, piece.payload.length - done)"),
    Mutant("a recovery cuts the file inside sectors", PIECES, "up_to_sector(at, write_chunk_bytes, end - at)",
           "std::min(write_chunk_bytes, end - at)"),
    Mutant("a journal of another inode is applied unseen", HOT_JOURNAL, "if (is_strange())", "if (false)", rule="INODE_UNSEEN"),
    Mutant("a journal of another inode is never applied", HOT_JOURNAL, "if (is_strange())", "if (!same_inode_)"),
    Mutant("shards: an untouched part of another inode is applied unseen", "core/journal/roll_forward.cpp", "if (has_begun_) return", "if (true) return"),
    Mutant("shards: an untouched part of another inode is never applied", "core/journal/roll_forward.cpp", "if (has_begun_) return", "if (false) return"),
    Mutant("a journal in a folder that was moved is used", FOLDER, "if (taken.journal && check_beside(taken))", "if (taken.journal)"),
    Mutant("a child takes its parent's journals", "core/os/per_process.h", "while (last->generation != now)", "while (last->generation > now)"),
    Mutant("a transaction does not lock its tensors", COMMIT_LOCK,
           "  for (const Covered &c : bytes_to_lock(staged)) ranges.push_back({c.begin, c.end - c.begin, true});\n", ""),
    # slices
    Mutant("slices: bytes between short strips are not those of the file", SLICES,
           "        ST_TRY(data.read(reader.buffer(), n, at + stretch.begin));\n", "        static_cast<void>(data);\n"),
    Mutant("slices: of what changes only the first byte is locked", SLICES,
           "ranges.push_back({p.offset, p.offset + p.payload.length});", "ranges.push_back({p.offset, p.offset + 1});"),
    Mutant("slices: what was staged is not compared", SLICES, "  if (same) return {};\n  return fail(", "  if (same || true) return {};\n  return fail("),
    Mutant("slices: a whole tensor leaves older slices over it", STAGING, "  staged.slices.erase(*index);  // all of it is new\n", ""),
    Mutant("slices: a tensor that was staged before is lost under them", SLICES,
           "    fresh.map.put({0, s.piece.payload.length, staged.slice_payloads.size(), 0});\n", ""),
    Mutant("slices: those of a publish are left out", REWRITE, "  ST_TRY(write_slices(staged, file, **taken, &made->built));\n", ""),
    Mutant("slices: a journal that went keeps them", STAGING, "  return restage_slices(staged, *gone.journal);\n", "  return {};\n"),
    Mutant("slices: shards leave them out", PARTICIPANT, "    ST_TRY(assemble_slices(of_, lock_.file()));\n", ""),
    Mutant("slices: a put leaves older ones over it", "core/file/pending_catalogue.cpp",
           "    t.payload = change.payload;\n    t.slices.clear();\n    return;", "    t.payload = change.payload;\n    return;"),
    Mutant("slices: more locks than the kernel likes", SLICES, "staged.slices.empty() ? most_locks : staged.tensors.size() + most_slice_locks", "most_locks + 0 * most_slice_locks"),
    Mutant("a patch takes a lock for each of its tensors", SLICES, "constexpr size_t most_locks = 4096;", "constexpr size_t most_locks = SIZE_MAX;"),
    Mutant("locks join where gaps are equal", "core/file/slice_map.cpp", "between < std::max(gap, go.longest)", "between < std::max(gap, go.longest + 1)"),
    Mutant("a transaction does not hold off recovery", COMMIT_LOCK,
           "std::vector<os::LockRange> ranges{{0, staged.snapshot->header.data_offset(), false}};", "std::vector<os::LockRange> ranges;"),
    Mutant("deferred: the file is not synced", DEFERRED, "next.data->file.sync_data(); !done", "Result<void>(); !done"),
    Mutant("deferred: a journal is emptied while it may be read", DEFERRED,
           "      ST_TRY(lock, os::RangeLock::acquire(next.data->file, {{0, next.data_offset, false}}, wait));\n", ""),
    Mutant("deferred: a journal that another has finished is used again", DEFERRED,
           "if (stands) {", "if (stands || true) {"),
    Mutant("deferred: its bytes stay locked", DEFERRED, "  commit.data->lock.release();\n", ""),
    Mutant("deferred: a failed sync is tried once more", DEFERRED, "  if (*open_outcome) settling_.clear();\n", ""),
    Mutant("deferred: a poisoned handle settles", "core/file/data_file.cpp", "  if (poisoned()) ST_TRY(deferred_->leave(wait));", "//"),
    Mutant("deferred: with four flushes, too", "core/file/patch_commit.cpp",
           "staged.journal.journal && flushes_of(staged) == write::Flushes::two", "staged.journal.journal"),
    Mutant("deferred: what finds no place waits all the same", DEFERRED, "for (size_t taken = places_; taken < most;)", "for (size_t taken = places_; taken < 99;)"),
    Mutant("deferred: one descriptor is synced for all", DEFERRED, "is_first || next.added_before <= synced", "is_first"),
    Mutant("deferred: a shard's commits, too", "core/shards/shard_transaction.h", "    options.journal_only = false;", "    //"),
    Mutant("deferred: close forgets them", "core/file/data_file.cpp",
           "    auto settled = settle_deferred({wanted_ms < 0 ? most_ms : std::min(wanted_ms, most_ms), nullptr, nullptr});",
           "    Result<bool> settled = wanted_ms == most_ms && false;"),
    Mutant("a transaction does not look for journals", COMMIT_LOCK, "  if (!settled) return write::Look::hot;\n", ""),
    Mutant("nobody looks whether what is locked was replaced", NAMED_LOCK, "    if (!replaced) return locked;\n", "    return locked;\n"),
    Mutant("a transaction does not look whether the header was rewritten", COMMIT_LOCK, "  if (*identity != identity_of(*staged.snapshot)) {", "  if (false) {"),
    # a journal folder that goes
    Mutant("what was staged in a folder that is gone is not staged anew", PATCH_COMMIT,
           "  ST_TRY(restage_if_gone(staged));\n", ""),
    Mutant("a journal that went after its record is believed in", PATCH,
           "  if (auto found = there(); !found) {\n    // Another", "  if (Result<void> found; !found) {\n    // Another"),
    Mutant("shards: a part that went before the decision is carried out", SHARDS_COMMIT,
           "  auto there = check_all_is_there();", "  Result<void> there;"),
    # several files
    Mutant("shards: no sync of the super-journal's list", SHARDS_COMMIT,
           "  ST_TRY(journal.sync_payload(decision_.taken.folder->dir()));\n", ""),
    Mutant("shards: new files are not synced", PARTICIPANT,
           "  ST_TRY(made->replacement->sync(of_.control));\n", ""),
    Mutant("shards: names of new files are not durable before the decision", SHARDS_COMMIT,
           "  if (makes_files)\n    ST_TRY(sync_folder());\n  const write::Identity known", "  const write::Identity known"),
    Mutant("shards: the index does not wait for what shards gain", SHARDS_COMMIT,
           "  if (makes_files)\n    ST_TRY(sync_folder());\n  if (index_.fresh) {", "  if (index_.fresh) {"),
    Mutant("shards: what a shard loses does not wait for the index", SHARDS_COMMIT,
           "    ST_TRY(sync_folder());\n  }\n", "  }\n"),
    Mutant("shards: what a shard loses is not kept while it gains", PARTICIPANT, "make(&entry->first_form, &entry->first, made.first_keeps)", "make(&entry->first_form, &entry->first, false)"),
    Mutant("shards: a part is not asked for its super-journal", RECOVER, "if (decision == Decision::yes) {\n      super_", "if (false) {\n      super_"),
    Mutant("shards: a part counts without its super-journal", RECOVER, "never_was = decision == Decision::no;", "never_was = false, hot.damage.clear();"),
    Mutant("shards: the super-journal goes before the parts", SHARDS_COMMIT,
           "  for (const auto &part : parts_)\n    ST_TRY(part->mark_done());\n  ST_TRY(decision_.taken.journal->invalidate());\n",
           "  ST_TRY(decision_.taken.journal->invalidate());\n  for (const auto &part : parts_)\n    ST_TRY(part->mark_done());\n"),
    Mutant("shards: a finished part is emptied to zeros", PARTICIPANT, "  return of_.journal.journal->finish();", "  return of_.journal.journal->invalidate();"),
    Mutant("shards: recovery empties a finished part to zeros", HOT_JOURNAL, "  return put_record(part, done_record);", "  return empty(part);"),
    Mutant("shards: a part that was found done is not made durable", "core/journal/roll_forward.cpp", "    if (t.journal) ST_TRY(mark_done", "    if (t.journal && !t.done()) ST_TRY(mark_done"),
    Mutant("shards: a done record is dropped before its super-journal", RECOVER,
           "  if (decision == Decision::unknown || (decision == Decision::yes && leaves_done_)) return {};\n  if (decision == Decision::yes) {", "  if (false) {"),
    Mutant("shards: a done record is dropped though a power cut may bring the super-journal back", RECOVER,
           "decision_on(file_, done.record, identity, true)", "decision_on(file_, done.record, identity, false)"),
    Mutant("shards: a part is dropped before its missing decision is durable", RECOVER,
           "decision_on(file_, hot.record, identity, true)", "decision_on(file_, hot.record, identity, false)"),
    Mutant("an empty journal is dropped before that is durable", HOT_JOURNAL,
           "  if (found.size > 0 && !folder.dir().reads_past_cache()) ST_TRY(empty(found));\n", ""),
    Mutant("what was moved aside may come back", MOVE_ASIDE, "      ST_TRY(dir.sync());\n", ""),
    Mutant("what a dead writer had emptied is not made durable", RECOVER, "  if (!journals.idle) return true;\n", "  return true;\n"),
    Mutant("shards: what a dead writer had marked as done is not made durable", HOT_JOURNAL, "    ST_TRY(mark_done(found));\n", "    ;\n"),
    Mutant("what a dead writer had emptied is dropped before that is durable", HOT_JOURNAL,
           "    if (ours) ST_TRY(empty_and_drop(folder, name, found));\n", "    if (ours) drop(folder, name);\n"),
    Mutant("what a failed sync has lost is not written once more", HOT_JOURNAL,
           "    ST_TRY(mark_done(found));\n  } else {\n    ST_TRY(auto ours, claim(folder, &name, found));\n    if (found.waits()) return false;\n    if (ours) ST_TRY(empty_and_drop(folder, name, found));\n  }",
           "    ST_TRY(found.file.sync_data());\n  } else {\n    ST_TRY(found.file.sync_data());\n  }"),
    Mutant("a journal that a dying writer has emptied is not synced", HOT_JOURNAL, "    ST_TRY(sync_for(found));\n", "    ;\n"),
    Mutant("the lock on a journal does not tell of a record", JOURNAL,
           "  ST_TRY(auto locked, lock_.try_take(recorded));\n  if (!locked) return", "  if (false) return"),
    Mutant("hosts: a record is written into a journal that another has locked", JOURNAL, "  if (!locked) return Failure(locked_by", "  if (!locked && false) return Failure(locked_by"),
    Mutant("the lock on a journal tells of a record for ever", JOURNAL, "  static_cast<void>(lock_.try_take(unrecorded));  // or others sync it once too often\n", ""),
    Mutant("a writer's lock on its journal is taken for that of a parked one", HOT_JOURNAL,
           "locked == os::Locked::shared ? Holder::parked : Holder::writer;\n", "locked == os::Locked::shared ? Holder::parked : Holder::parked;\n"),
    Mutant("a journal that is emptied no longer tells what it said", JOURNAL, "  static constexpr std::byte zeros[sector_bytes] = {};\n  bytes_written_", "  static constexpr std::byte zeros[header_bytes] = {};\n  bytes_written_"),
    Mutant("a journal of a writer who works elsewhere is synced", RECOVER, "  return read && read->is_good() && meets;", "  return found.has_last || (read && read->is_good() && meets);"),
    Mutant("a save overlooks a dying writer's journal", REPLACE_FILE, "settle_hot_journals(*folder, now, {{}, {&all, 1}})", "settle_hot_journals(*folder, now, {})"),
    Mutant("a save leaves the journals of a file that is gone", REPLACE_FILE, "  ST_TRY(move_all_aside(target_, fresh, wait_, log_));\n", "  static_cast<void>(fresh);\n"),
    Mutant("a save does not wait for the writer of a file that is gone", MOVE_ASIDE, "  if (!lock && lock.error().status == Status::busy)\n    return Failure(os::tell", "  if (!lock && lock.error().status == Status::busy) return Holder::parked;\n  if (false)\n    return Failure(os::tell"),
    Mutant("what another save has moved aside may come back", MOVE_ASIDE, "    ST_TRY(folder->dir().sync());", "    ;"),
    Mutant("a save leaves what a dead writer of a file that is gone had emptied", MOVE_ASIDE, "    ST_TRY(auto settled, settle_idle(folder, name, *found, held, false));", "    const bool settled = held <= Holder::writer;"),
    Mutant("shards: a save leaves the super-journal of a shard that is gone", MOVE_ASIDE, "  if (found->verdict.is_good() && found->record.is_part()) {", "  if (false) {"),
    Mutant("shards: a new name is one of a file that is gone", NEW_NAMES, "r < 0 && journals.stat(&s) == -ENOENT;", "r < 0;"),
    Mutant("the name of a file that was replaced is not synced", PATCH_COMMIT,
           "  ST_TRY(staged.file.journals().make_name_durable(lock.identity.inode));\n", ""),
    Mutant("the name of a file is taken for durable by an inode of old", "core/journal/journal_folder.h", "    if (named_ != inode) named_ = 0;\n", "    static_cast<void>(inode);\n"),
    Mutant("the name of a file is synced each time", FOLDER, "  named_ = inode;\n", ""),
    Mutant("shards: a part that is gone counts as carried out", "core/journal/roll_forward.cpp", "  if (!target.journal)\n    return Verdict::bad(\n        text(in_quotes(target.entry->file), \" was to", "  if (!target.journal) return Verdict::good();\n  if (false)\n    return Verdict::bad(\n        text(in_quotes(target.entry->file), \" was to"),
    Mutant("shards: a decision that is not durable is carried out", SUPER_RECOVER, "  ST_TRY(confirm(super));\n", ""),
    Mutant("a hot journal is recovered beneath the lock that met it", "core/journal/lock_settled.cpp",
           "if (look && *look == Look::settled) *locked", "if (look) *locked"),
    Mutant("shards: a state does not get a shard that is about to change", SHARDS,
           "  ST_TRY(shards_.pin_in_all_states(*shown().shards()[shard]));\n", ""),
    Mutant("new names: a change is staged in an old shard before the new one is shown", "core/shards/new_names.cpp", "if (renamed) ++shards_.shards_newer_;", ""),
    Mutant("shards: a refresh amid a commit hides what that has shown", SHARDS_COMMIT, "if (index_.fresh) ++shards_.shards_newer_;", "{}"),
    Mutant("shards: the index of the commit before is taken for another's", "core/shards/shards.cpp",
           "now_own == own || now_own == before", "now_own == own"),
    Mutant("shards: the index stays locked while the result is shown", SHARDS,
           "  return or_why_gone(ShardCommit(shards_, shown(), work_of(parts)).run([this] { return approve(); }, at_last_));\n",
           "  ShardCommit commit(shards_, shown(), work_of(parts));\n  ST_TRY(commit.run([this] { return approve(); }, at_last_));\n"
           "  show_result();\n  return {};\n"),
    Mutant("shards: a dying writer's decision counts as a living one's", RECOVER, "if (found.record.is_super() || (found", "if ((found"),
    Mutant("shards: the folder that was there before the lock counts", SUPER_RECOVER,
           "  ST_TRY(auto folder, Folder::open(index_, by_path, {}));", "  auto &folder = there;"),
    Mutant("shards: what was decided meanwhile is taken for rubbish", RECOVER,
           "  if (!there && !TemporaryFile::is_any(file_, undecided_infix, listed_)) return Attempt::done;",
           "  if (!there) {\n    TemporaryFile::remove_stale(file_, undecided_infix);\n    return Attempt::done;\n  }"),
    Mutant("shards: an index is known by its inode alone", "core/shards/shards.cpp",
           "s.st_ctim.tv_nsec)};\n  return hash64(parts, sizeof parts);",
           "s.st_ctim.tv_nsec)};\n  return s.st_ino + 0 * parts[0];"),
    Mutant("shards: one that disagrees is not looked at again", "core/shards/shard_catalogue.cpp", "looks < 2", "looks < 1"),
    Mutant("shards: a change that is under way is not awaited", "core/shards/shard_catalogue.cpp",
           "    ST_TRY(owner_.with_room([&] { return Shards::await_writers(owner_.location(), wait); }));\n",
           "    static_cast<void>(wait);\n"),
    Mutant("shards: one of a dying writer is not finished before it is blamed", "core/shards/shard_catalogue.cpp", "refresh_settled()", "refresh()"),
    Mutant("shards: a handle that followed in vain goes on", SHARDS, "&now != pinned.snapshot && !shown().agrees(shard, now)", "&now == nullptr"),
    Mutant("shown: a shard that is opened late is shown with what was replaced", "core/shards/shard_catalogue.cpp", "      if (!replaced) continue;\n", "      if (!replaced || settled_at > 0) continue;\n"),
    Mutant("shown: a commit by a living writer that is half done is not waited for", "core/shards/shards.cpp", "  if (!decided) return {};\n", "  if (!decided || at_) return {};\n"),
    Mutant("shown: a refresh does not look whether what it found was replaced meanwhile", "core/shards/shards.cpp", "        ST_TRY(r.is_to_be_found, r.shard().was_replaced_by_others(r.state()));\n", ""),
    Mutant("shown: a shard that was opened beside a refresh stays as it was", "core/shards/shards.cpp", "    again = add_opened();\n", ""),
    Mutant("shown: what another call has shown meanwhile is not looked at", "core/shards/shard_catalogue.cpp", "    if (pins() != before) continue;\n", ""),
    Mutant("shown: a shard that did not go with the others is in the next state", "core/shards/shard_catalogue.cpp", "    if (!shards()[i]->is_shown()) continue;\n", "    if (!shards()[i]->opened()) continue;\n"),
    Mutant("shown: a new shard is not withheld", "core/file/participant.h", "    if (publishes()) of_.file.withhold();\n", ""),
    Mutant("an index of the same length is taken for the one that was read", "core/shards/shards.cpp", " && now.hash == known->hash", ""),
    Mutant("the new index is made of what the index was", "core/shards/shard_commit.cpp", "new_index_->hash != read.hash || ", ""),
    Mutant("the new index has the names that shards were to get before", "core/shards/shard_commit.cpp", " || new_index_->new_names != new_names_", ""),
    Mutant("shown: a new index is not withheld", "core/shards/shards.cpp", "if (withheld && os::same_inode(", "if (false && os::same_inode("),
    Mutant("shown: a file that a hot journal has replaced stays open", "core/file/data_file.cpp", "    if (met == Met::hot) {", "    if (false) {"),
    Mutant("shown: a withheld file that took the name of an open one is an error", "core/file/data_file.cpp",
           "      if (!read && !withheld) {", "      if (!read) {"),
    Mutant("shown: a file that takes the name of an open one beside a refresh is an error", "core/file/data_file.cpp",
           "        if (there == -ENOENT || (there == 0 && !os::same_inode(named, now->identity))) continue;\n", "        static_cast<void>(there);\n"),
    Mutant("shown: what a refresh finds beside a commit that fails is all of it", "core/shards/shards.cpp",
           "if (kept.refreshed != unseen_) return true;", ""),
    Mutant("shown: a refresh counts as seen what was left to recovery beside it", "core/shards/shards.cpp",
           "  const uint64_t unseen = unseen_;\n  ST_TRY(recover_left(timeout_ms));\n", "  ST_TRY(recover_left(timeout_ms));\n  const uint64_t unseen = unseen_;\n"),
    Mutant("shown: an index that was read before the shards were refreshed is shown with them", "core/shards/shards.cpp",
           "    kept.settled_at = settled_at;\n    ++shards_newer_;\n", "    kept.settled_at = settled_at;\n"),
    Mutant("shown: what a transaction has followed to comes alone", "core/shards/shards.cpp",
           "return shard && shard->has_followed();", "return false;"),
    Mutant("shown: an index by others comes without their shards", "core/shards/shards.cpp", "index == refreshed_with;", "index == refreshed_with || true;"),
    Mutant("shown: an index that a commit of ours has replaced counts as seen", "core/shards/shards.cpp",
           "  if (!was_own && !hold()->is_of(before)) ++unseen_;", " "),
    Mutant("shown: after a commit that failed half way others go on", SHARDS, "  if (!shards.poisoned()) return {};\n", "  if (true) return {};\n"),
    # new files
    Mutant("a temporary that was made again is not locked", TEMPORARY_FILE, "    lock_.release();  // or it would end the next one's, which is of file_ too\n", ""),
    Mutant("a new file is not synced before it is renamed", RENAME_INTO_PLACE, "  if (auto synced = sync(control); !synced) return Failed({std::move(synced.error()), false});\n", "  static_cast<void>(control);\n"),
    Mutant("a rename is not synced", RENAME_INTO_PLACE, "if (auto synced = folder->sync(); !synced) return Failed({std::move(synced.error()), true});", ";"),
    # new names
    Mutant("new names: a new shard is not synced", PARTICIPANT, "  return first_->replacement->file().sync();", "  return {};"),
    Mutant("new names: they are not durable before the index", NEW_NAMES, "name_after(name_of(*part))));\n  ST_TRY(sync_folder());\n", "name_after(name_of(*part))));\n"),
    Mutant("new names: the new index is not synced", SHARDS_COMMIT, "  return file.sync();", "  return {};"),
    Mutant("new names: the index's new name is not durable", NEW_NAMES, "if (renamed) done = sync_folder();", ""),
    Mutant("new names: the list of old shards is not synced", OLD_SHARDS, "  ST_TRY(file.sync());\n  return made->rename();", "  return made->rename();"),
    Mutant("new names: an older index may come back without its shards", OLD_SHARDS,
           "  // An older index must not come back by a power cut when its shards are gone.\n  ST_TRY(folder.sync());\n", ""),
    Mutant("new names: an old shard may come back when it is no longer listed", OLD_SHARDS,
           "  // Nor a shard, when it is no longer listed.\n  return folder.sync();", "  return {};"),
    Mutant("new names: what the new index names goes with its writer", NEW_NAMES, "part->leave_new_name(true);", "part->leave_new_name(false);"),
    Mutant("new names: the old shards are not listed", NEW_NAMES, "    ST_TRY(with_room([&] { return old_->write_list(list, index_.file(), warnings_.log()); }));\n", ""),
    Mutant("new names: what no index came to name stays", OLD_SHARDS, "      old.unnamed_.push_back(name);", "      {}"),
    Mutant("new names: whatever has a number and no index is rubbish", OLD_SHARDS, "number > reached", "number > 0"),
    Mutant("new names: what lies beside no list is rubbish", OLD_SHARDS, "old.has_list_ && old.verdict_.is_good();", "true;"),
    Mutant("new names: the list may come to the disk after a new name", NEW_NAMES, "    ST_TRY(sync_folder());  // a shard", "    // a shard"),
    Mutant("new names: old shards do not get their time", OLD_SHARDS, "return old.until <= now;", "return old.until <= now || now > 0;"),
    Mutant("new names: whatever stands under a listed name is removed", OLD_SHARDS, "return s.st_ino == listed.inode &&", "return s.st_ino != 0 || s.st_ino == listed.inode &&"),
    Mutant("new names: other indexes in the folder are not asked", OLD_SHARDS, "named.insert(read->index().shards().begin(), read->index().shards().end());", ""),
    Mutant("new names: an index that cannot be read names nothing", OLD_SHARDS, "    if (!read) return nobody_knows(read.error());\n", "    if (!read) continue;\n"),
    Mutant("new names: anybody's list is believed", OLD_SHARDS, "!owned.is_good()) return owned;", "!owned.is_good()) return write::Verdict::good();"),
    Mutant("new names: an old shard is changed though the index names it no more", SHARDS, "check_led_to());\n  ST_TRY(check_named());\n", "check_led_to());\n"),
    Mutant("a temporary of a dead writer stays", TEMPORARY_FILE, "  return at.env().unlinkat(at.dir(), at.name().c_str(), 0) == 0;\n", "  return true;\n"),
    Mutant("a failed writer leaves its temporary", TEMPORARY_FILE, "if (!is_anothers()) env().unlinkat(target_.dir(), temporary_.c_str(), 0);", ""),
    Mutant("a publish does not lock the whole file", COMMIT_LOCK, "if (staged.publishes()) ranges = {os::whole_file(true)};", "if (staged.publishes()) ranges.clear();"),
    # turns
    Mutant("turns: the whole file has the turnstile in it", RANGE_LOCK_H, "whole_file_bytes, exclusive}", "0, exclusive}"),
    Mutant("turns: a patch does not look at the gate", TURNSTILE,
           "    if (!closed) {\n      ST_TRY(auto taken, take(first));", "    {\n      ST_TRY(auto taken, take(first));"),
    Mutant("turns: a patch that waits for a tensor does not step back", TURNSTILE, "      if (closed) return false;\n", ""),
    Mutant("turns: a patch goes on counting as one that waits", TURNSTILE,
           "  if (moved_(file_)) return false;\n  held_.drop(turnstile_bytes);\n", "  if (moved_(file_)) return false;\n"),
    Mutant("turns: a writer does not let in the patches that waited", TURNSTILE, "step : {queue, let_in, close, lock}", "step : {queue, close, lock}"),
    Mutant("turns: a writer does not look whether others wait", TURNSTILE, "  ST_TRY(auto others, is_taken(file_, turnstile_bytes));", "  const bool others = false;"),
    Mutant("turns: a place is given up before there is another", TURNSTILE,
           "    ST_TRY(pass.come_over());\n", ""),
    Mutant("turns: a publish does not hand over", REWRITE, "  if (placed) os::hand_over(lock.file(), lock.held->lock);\n", ""),
    Mutant("a publish forgets what was staged for a patch", STAGING, "    changes.push_back(std::move(change));\n  }", "  }"),
    Mutant("a publish copies before its payloads are in the journal", REWRITE, "  if (staged.journal.journal)\n    ST_TRY(staged.journal.journal->flush());\n", ""),
    Mutant("a file whose name was not synced is called durable", REWRITE, "  if (placed) return {};\n  staged.file.poison();", "  return {};"),
    Mutant("data begins where nothing can be shared", DATA_OFFSET, "next_congruent(least, best.rest, options.block)", "next_congruent(least, best.rest + 8, options.block)"),
    Mutant("blocks are shared that lie apart", TRANSFER, "if (block == 0 || range.from % block != range.to % block) return {};", "if (block == 0) return {};"),
    Mutant("the edges of shared blocks are not copied", TRANSFER, "  ST_TRY(copy(from, to, {range.from, range.to, head}, tell));\n", ""),
    Mutant("a save does not lock what it replaces", REPLACE_FILE, "  auto look = lock_settled(target, wait, steps, &old.locked);", "  Result<Look> look = fail(Status::lock_unsupported, \"\");"),
    # what is on its way to the disk
    Mutant("a slice that the disk did not take is forgotten", WRITE_OUT, "  if (r < 0 && !os::is_missing(r) && r != -ESPIPE) return", "  if (false) return"),
    Mutant("a call is not stopped while the disk works", WRITE_OUT, "return control.check(end - begin, end - begin);", "return control.with(nullptr).check(0, 0);"),
    Mutant("a journal that lost a slice is used again", FOLDER, "const bool good = !taken.journal->lost() &&", "const bool good ="),
    # deltas
    Mutant("deltas: the way back is not finished before the change", DELTA_PATCH, "{ return reverse_ ? reverse_->finish() : Result<void>(); }", "{ return {}; }"),
    Mutant("deltas: a patch does not wait for the way back", PATCH_COMMIT, "[&] { return staged.with_room(at_last); }", "[] { return Result<void>(); }"),
    Mutant("deltas: with an undo record the way back comes after the commit", PATCH,
           "  if (undo)\n    if (auto may = ask.at_last(); !may) return Failed(back(std::move(may.error())));\n"
           "  if (auto retired = journal.retire(); !retired) return Failed({std::move(retired.error()), true, true});\n",
           "  if (auto retired = journal.retire(); !retired) return Failed({std::move(retired.error()), true, true});\n"
           "  if (undo)\n    if (auto may = ask.at_last(); !may) return Failed({std::move(may.error()), true, true});\n"),
    Mutant("deltas: a publish does not wait for the way back", REWRITE, "    ST_TRY(staged.with_room(at_last));\n", ""),
    Mutant("deltas: shards do not wait for the way back", SHARDS_COMMIT, "  ST_TRY(with_room(at_last));\n", ""),
    Mutant("deltas: the bytes that go are not checked", DELTA_CHAIN, "    if (hashed != old.bytes)\n      return Failure(wrong_base(t.name, place.member->place(), hashed.all, old.result));\n", ""),
    Mutant("deltas: those below are not checked", DELTA_CHAIN, "  if (bytes == old.all) return {};\n  return Failure(wrong_base(t.name, holder.path, bytes, result));", "  static_cast<void>(bytes);\n  static_cast<void>(result);\n  return {};"),
    Mutant("deltas: bytes that steps lead to are not checked", "core/delta/stepped.cpp", "  return hashes->all == last.delta->notes.tensors[last.index].bytes ? hashes : astray(t);", "  return hashes->all == last.delta->notes.tensors[last.index].bytes || true ? hashes : astray(t);"),
    Mutant("sparse: what the steps make in place is not checked", "core/delta/stepped.cpp", "  if (fresh.digest().all != wanted.bytes) return Failure(wrong_steps(t.tensor.name, steps.delta->path));\n", ""),
    Mutant("sparse: the bytes that steps change in place are not checked", "core/delta/stepped.cpp", "  if (found != wanted.old->all) return Failure(wrong_base(t.tensor.name, t.path, found, wanted.bytes));\n", ""),
    Mutant("sparse: the way back is made before the base is known", "core/file/transaction.cpp",
           "  ST_TRY(assemble_remakes(staged_, lock.file()));\n  ST_TRY(const auto plan,", "  ST_TRY(approve());\n  approve_ = nullptr;\n  ST_TRY(assemble_remakes(staged_, lock.file()));\n  ST_TRY(const auto plan,"),
    Mutant("sparse: what went with a journal is not made anew", "core/file/staging.cpp", "  staged.remade.clear();  // they are made anew\n", ""),
    Mutant("sparse: what is made at commit is not locked", "core/file/slices.cpp", "    pieces.push_back({tensor.begin, {0, tensor.length, 0}});\n", "    pieces.push_back({tensor.begin, {0, 1, 0}});\n"),
    Mutant("sparse: a block is noted while it is made", "core/delta/stepped.cpp", "    BlockPair &pair = pairs[begin / step_block_bytes % 2];\n", "    BlockPair &pair = pairs[0];\n"),
    Mutant("sparse: of an element on two pages the second is not written", "core/file/remakes.cpp", "      behind = page_of(byte(next_ - 1) + width_ - 1) + 1;\n", ""),
    Mutant("sparse: changes may lead out of their range", "core/journal/changes.cpp", "    if (at >= elements || laid == count) return false;\n", ""),
    Mutant("sparse: changes may be longer than they can be", LAYOUT, "  if (r.is_sparse() && (r.length > longest_sparse || r.packed > longest_changes(r.length)))\n", "  if (false)\n"),
    Mutant("sparse: what stays in a new sector is not compared", HOT_JOURNAL, "hash == fresh[i] && std::memcmp", "std::memcmp"),
    Mutant("sparse: tables of hashes are not compared", HOT_JOURNAL, "  if (hash64(old, sectors * sizeof *old) != range.sectors_hash ||\n      hash64(fresh, sectors * sizeof *fresh) != range.fresh_hash)\n", "  if (false)\n"),
    Mutant("sparse: what changes is not compared with its hash", HOT_JOURNAL, "  if (hash64(packed.get(), range.packed) != range.payload_hash) return damaged(\"a payload is damaged\");\n", ""),
    Mutant("sparse: a finished record without its rest is not known", HOT_JOURNAL, "range.is_sparse() ? table.digest() == range.fresh_hash : bytes.digest() == range.payload_hash", "bytes.digest() == range.payload_hash"),
    Mutant("sparse: recovery lays nothing", HOT_JOURNAL, "range.is_sparse() ? write_changes(data_, hot_.file, range, buffers.packed.get(), buffers.payload.get())", "range.is_sparse() ? Result<void>()"),
    Mutant("sparse: a part does not say that it is sparse", PATCH, "  const uint64_t flags = any_sparse(pieces) ? sparse_record : 0;\n", "  const uint64_t flags = 0;\n"),
    Mutant("sparse: a part that is sparse is not known", LAYOUT, "const uint64_t but_sparse = out->flags & ~sparse_record;", "const uint64_t but_sparse = out->flags;"),
    Mutant("sparse: on shards the way back is made before the base is known", SHARDS_COMMIT,
           "  for (const auto &part : parts_) ST_TRY(part->assemble());\n  const auto can_be_done = [this] {", "  ST_TRY(approve());\n  for (const auto &part : parts_) ST_TRY(part->assemble());\n  const auto can_be_done = [this] {"),
    Mutant("sparse: what went with a part's journal is not made anew", PARTICIPANT, "    ST_TRY(assemble());\n", ""),
    Mutant("sparse: elements are made of a shard that is not shown", SHARDS, "    ST_TRY(check_shown(shard, *in));\n", ""),
    Mutant("sparse: elements are made by an index that is not shown", SHARDS, "    ST_TRY(shown().check_same_index());\n    ST_TRY(check_shown", "    ST_TRY(check_shown"),
    Mutant("sparse: elements of a shard that gets a new name are made in place", SHARDS, "  if (options_.new_names) return false;\n", ""),
    Mutant("sparse: steps are staged before it is known which shards are made anew", DELTA_PATCH, "  ST_TRY(transaction.replace_metadata(result.metadata));\n  ST_TRY(stage_all_steps(transaction));\n", "  ST_TRY(stage_all_steps(transaction));\n  ST_TRY(transaction.replace_metadata(result.metadata));\n"),
    Mutant("sparse: a sector in which nothing changes is a trace of the change", HOT_JOURNAL, "touched_ |= is_new && !is_old;", "touched_ |= is_new;"),
    Mutant("deltas: steps may lead out of their block", "core/delta/steps.cpp", "    if (at >= n) return false;\n", ""),
    Mutant("deltas: blocks of steps may come in any order", "core/delta/steps.cpp", "  if (number_ < after_) return damaged(\"the blocks do not ascend\");\n", ""),
    Mutant("deltas: of an element on two pages the second is not written", "core/delta/stepped.cpp", "    changed_[at / page] = changed_[(at + width - 1) / page] = 1;", "    changed_[at / page] = 1;"),
    Mutant("deltas: shards are changed unasked", SHARDS_COMMIT, "  ST_TRY(approve());\n  return can_be_done();", "  return can_be_done();"),
    Mutant("deltas: an overlay does not look at the heads", OVERLAY, "  ST_TRY(check_heads(base, spread(chained.old)));\n", ""),
    # what servers answer
    Mutant("remote: a replaced object is only an error", JUDGE, "  if (!is_version(answer.head, asked.version)) {", "  if (false) {"),
    Mutant("remote: any range is taken", JUDGE,
           "  return range && range->first == first && range->last == first + n - 1 && (!range->total || *range->total == total);", "  return range.has_value() && first + n + total > 0;"),
    Mutant("remote: what came is asked for again", PULL, "const uint64_t came = answer.fitted ? std::min(answer.received, piece.n) : 0;", "const uint64_t came = 0;"),
    Mutant("remote: a hedge writes where the first request does", PULL, "second.piece.to = second.own.get();", "second.piece.to = flight.piece.to + have;"),
    Mutant("remote: what a hedge has beaten goes on", PULL, "      drop(flight.hedge_of);\n", "      land(flight.hedge_of);\n"),
    Mutant("remote: a hedge that was beaten goes on", PULL, "    if (flight.hedge) drop(flight.hedge);\n    return", "    return"),
    Mutant("remote: a call waits for ever", PULL, "if (now - last_came_ > limits_.deadline_ms)", "if (false)"),
    Mutant("remote: all ask again at the same time", PACE, "most / 2 + random % (most - most / 2 + 1)", "most + 0 * random"),
    Mutant("remote: a handle asks again for ever", PACE, "  if (tokens_ < 1) return false;\n", ""),
    Mutant("remote: hedges have no number", PACE, "hedges_ >= limits_.hedges || !take_token(now_ms)", "!take_token(now_ms)"),
    Mutant("remote: what is late is known at once", PACE, "  if (count_ < enough) return std::nullopt;\n", ""),
    Mutant("remote: connections grow whatever they bring", PACE, "  if (rate < rate_ * worth_growing) {", "  if (false) {"),
    Mutant("remote: a call does not wait for a place", PACE, "  if (!stops) free_.wait(lock, is_free);\n", ""),
    Mutant("remote: a caller that waits is not asked", PULL, "        stopped_ = stopped_ || stops_();\n", ""),
    Mutant("remote: the checksum is not compared", CHECKSUM, "  if (!expected_ || crcs", "  if (true || !expected_ || crcs"),
    Mutant("remote: parts that do not touch are joined", CHECKSUM, "at->first == run.end", "at->first >= run.end"),
]
# fmt: on


# Variants of hosts.pml for what a server does, and no rule of libst's.
NO_RULES = {"IN_FLIGHT"}


def change(text: str, old: str, new: str):
    """`text` with its only `old` replaced, however lines are broken; None if it is not there once."""
    places = [i for i, c in enumerate(text) if not c.isspace()]
    dense, wanted = "".join(text[i] for i in places), "".join(old.split())
    if dense.count(wanted) != 1:
        return None
    at = dense.index(wanted)
    return text[: places[at]] + new + text[places[at + len(wanted) - 1] + 1 :]


def stale() -> list:
    """What is wrong with the list itself, of all mutants, also those that this run does not try."""
    wrong = [
        f'the text of "{mutant.name}" does not stand once in {mutant.file}'
        for mutant in MUTANTS
        if change((ROOT / mutant.file).read_text(), mutant.old, mutant.new) is None
    ]
    model = set(re.findall(r"^hosts fault .*-D(\w+)$", (ROOT / "tests/model/run.sh").read_text(), re.MULTILINE))
    wrong += [f"no mutant lacks the rule {rule} of hosts.pml" for rule in model - NO_RULES - {m.rule for m in MUTANTS}]
    return wrong + [f"hosts.pml has no rule {m.rule}" for m in MUTANTS if m.rule and m.rule not in model]


# What the copy of the sources has in core's base when several mutants are compiled at once.
SWITCH = """#pragma once
#include <cstdlib>
inline bool is_mutant(int number) {
  static const char *wanted = std::getenv("ST_MUTANT");
  return wanted && std::atoi(wanted) == number;
}
"""


def put_to_sleep(source: pathlib.Path, mutants: list):
    """All of these in one copy of the sources. Number i is awake where ST_MUTANT is i; they change whole statements."""
    (source / "core/base/mutant_switch.h").write_text(SWITCH)
    places = {}
    for number, mutant in enumerate(mutants):
        places.setdefault((mutant.file, mutant.old), []).append((number, mutant.new))
    for (file, old), variants in places.items():
        path = source / file
        text = ""
        for number, new in variants:
            if new.endswith(old):
                text += f"if (is_mutant({number})) {{\n{new.removesuffix(old)}}}\n"
            else:
                text += f"if (is_mutant({number})) {{\n{new}\n}} else "
        text += old if text.endswith("}\n") else f"{{\n{old}\n}}"
        path.write_text(change(path.read_text(), old, text))
    for file in {mutant.file for mutant in mutants}:
        path = source / file
        path.write_text('#include "base/mutant_switch.h"\n' + path.read_text())


class Workshop:
    """A copy of the sources with a build folder of its own."""

    def __init__(self, folder: pathlib.Path, suites: list, options: list):
        # They lie to each other as those of the repository do, so ccache has what no mutant touches.
        self.source, self.build = folder / "source", folder / "source" / "build"
        os.environ |= {"CCACHE_BASEDIR": str(self.source), "CCACHE_NOHASHDIR": "yes"}
        self.source.mkdir(parents=True, exist_ok=True)
        for name in ["core", "capi", "tests", "bindings", "meson.build", "meson_options.txt"]:
            path = ROOT / name
            shutil.rmtree(self.source / name, ignore_errors=True)
            (shutil.copytree if path.is_dir() else shutil.copy2)(path, self.source / name)
        # A run that was killed may have left objects of its mutant, newer than the sources.
        for file in {mutant.file for mutant in MUTANTS}:
            (self.source / file).touch()
        if not (self.build / "build.ninja").exists():
            command = ["meson", "setup", str(self.build), str(self.source), "-Dtests=true", "-Dcli=false", "-Dunity=on"]
            command += options
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        targets = subprocess.run(
            ["ninja", "-C", str(self.build), "-t", "targets", "all"], check=True, capture_output=True, text=True
        ).stdout
        made = {pathlib.PurePath(line.split(":")[0]).name: line.split(":")[0] for line in targets.splitlines()}
        self.programs = [made[suite] for suite in suites]
        self.patience: float = 900  # seconds, of a program

    def make(self, *programs: str) -> bool:
        return subprocess.run(["ninja", "-C", str(self.build), *programs], capture_output=True).returncode == 0

    def verdict_on(self, mutant: Mutant) -> str:
        """The first suite that goes red; each is built when it is its turn."""
        path = self.source / mutant.file
        text = path.read_text()
        path.write_text(change(text, mutant.old, mutant.new))
        try:
            for program in self.programs:
                if mutant.file.startswith("core/remote/") != program.endswith("/unit_remote"):
                    continue
                if not self.make(program):
                    return "the compiler"
                if self.goes_red(program):
                    return os.path.basename(program)
            return "SURVIVED"
        finally:
            path.write_text(text)

    def verdict_on_sleeper(self, number: int) -> str:
        red = (os.path.basename(program) for program in self.programs if self.goes_red(program, number))
        return next(red, "SURVIVED")

    def goes_red(self, program: str, awake: int | None = None) -> bool:
        # A mutant may hang or eat memory; both count as noticed.
        command = ["prlimit", "--as=8589934592", str(self.build / program)]
        command += ["--gtest_break_on_failure=0", "--gtest_fail_fast"]
        environment = {name: value for name, value in os.environ.items() if name != "ST_MUTANT"}
        if awake is not None:
            environment["ST_MUTANT"] = str(awake)
        try:
            run = subprocess.run(command, capture_output=True, timeout=self.patience, cwd=self.source, env=environment)
            return run.returncode != 0
        except subprocess.TimeoutExpired:
            return True


def in_turn(folder: pathlib.Path, chosen: list):
    """The verdict on each, one after the other."""
    shop = Workshop(folder, SUITES, ["--buildtype=plain", "-Doptimization=1", "-Dunity_size=4"])
    build_and_check(shop)
    return map(shop.verdict_on, chosen)


def at_once(folder: pathlib.Path, chosen: list):
    """The verdict on each, all of them compiled into one program."""
    of_setup = ["--buildtype=release", "-Doptimization=2", "-Dunity_size=24", "-Dwerror=true"]  # what ccache has
    shop = Workshop(folder / "quick", QUICK_SUITES, of_setup)
    put_to_sleep(shop.source, chosen)
    os.environ.setdefault("ST_TEST_BOUND", "small")  # which all of them die of
    build_and_check(shop)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from pool.map(shop.verdict_on_sleeper, range(len(chosen)))


def build_and_check(shop: Workshop):
    if not shop.make(*shop.programs):
        sys.exit("mutants: the sources do not build")
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        red = [program for program, is_red in zip(shop.programs, pool.map(shop.goes_red, shop.programs)) if is_red]
    if red:
        sys.exit(f"mutants: the unchanged sources fail {red}")
    shop.patience = max(120, 3 * (time.monotonic() - began))  # a busy machine is no mutant


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--build", default=str(ROOT / "build" / "mutants"))
    arguments = parser.parse_args()

    if wrong := stale():
        sys.exit("mutants: " + "\nmutants: ".join(wrong))
    chosen = [m for m in MUTANTS if arguments.only in m.name and (m.quick or not arguments.quick)]
    if arguments.list:
        for mutant in chosen:
            print(f"{mutant.file}: {mutant.name}")
        return 0

    survived = 0
    verdicts = (at_once if arguments.quick else in_turn)(pathlib.Path(arguments.build).resolve(), chosen)
    print(f"| {'mutant':66} | killed by |\n|{'-' * 68}|{'-' * 20}|")
    for mutant, verdict in zip(chosen, verdicts):
        survived += verdict.isupper() or verdict == "the compiler"
        print(f"| {mutant.name:66} | {verdict} |", flush=True)
    print(f"{len(chosen) - survived} passed, {survived} failed")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
