#!/usr/bin/env python3
"""Sync mutants: is every sync, hash, bound and order in the write path needed,
and would a test notice if it went missing?

Each mutant changes one place of a copy of the sources, rebuilds, and runs the
suites; a mutant that no suite notices has survived, which fails the run. Prints
a table. A mutant whose text is no longer in the sources fails too, so that the
list stays true.

    python3 tests/crash/mutants.py [--only WORD] [--build DIR]
"""
import argparse
import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUITES = ["crash_enumeration", "failing_calls", "layout_crash", "save_crash", "unit_write", "unit_store", "encounters"]


@dataclasses.dataclass
class Mutant:
    name: str
    file: str
    old: str
    new: str


JOURNAL = "core/write/journal.cpp"
RECOVER = "core/write/recover.cpp"
PATCH = "core/write/patch.cpp"
FOLDER = "core/write/journal_folder.cpp"
LAYOUT = "core/write/journal_layout.cpp"
TRANSACTION = "core/store/transaction.cpp"
REPLACEMENT = "core/write/replacement.cpp"
PUBLISH = "core/store/publish.cpp"
PLAN = "core/write/publish_plan.cpp"
TRANSFER = "core/write/transfer.cpp"
WRITER = "core/write/writer.cpp"

MUTANTS = [
    # syncs
    Mutant("no sync of the payload", JOURNAL,
           "  if (auto ok = file_.sync_data(); !ok) return ok;\n  if (name_durable_) return {};", "  if (name_durable_) return {};"),
    Mutant("no sync of the journal's folder", JOURNAL, "  if (auto ok = dir.sync(); !ok) return ok;\n", "  static_cast<void>(dir);\n"),
    Mutant("no sync of the commit record", JOURNAL,
           "  if (auto ok = file_.write(block.data(), block.size(), 0); !ok) return ok;\n  return file_.sync_data();",
           "  return file_.write(block.data(), block.size(), 0);"),
    Mutant("no sync of the changed file", PATCH, "  return data.sync_data();", "  return {};"),
    Mutant("no sync of the emptied journal", JOURNAL,
           "  if (auto ok = file_.sync_data(); !ok) return ok;\n  committed_ = false;", "  committed_ = false;"),
    Mutant("no sync of the folder that holds the journal folder", FOLDER,
           "  if (auto synced = parent->sync(); !synced) return Failure(std::move(synced.error()));\n", ""),
    Mutant("recovery does not sync the file", RECOVER, "  return data_.sync_data();", "  return {};"),
    Mutant("recovery does not sync the emptied journal", RECOVER,
           "  if (auto synced = orphan.file.sync_data(); !synced) return synced;\n", ""),
    # steps
    Mutant("the journal is not emptied", JOURNAL, "  if (auto ok = file_.write(zeros, sizeof zeros, 0); !ok) return ok;\n", "  static_cast<void>(zeros);\n"),
    Mutant("recovery does not empty the journal", RECOVER,
           "  if (auto put = orphan.file.write(zeros, sizeof zeros, 0); !put) return put;\n", "  static_cast<void>(zeros);\n"),
    Mutant("a failed sync does not poison", TRANSACTION,
           "    if (failure.sync_failed || failure.open_outcome) checkpoint_.poisoned_ = true;\n", ""),
    Mutant("a journal of open outcome is taken back", TRANSACTION,
           "  if (journal_.journal->committed()) checkpoint_.poisoned_ = true;\n  else checkpoint_", "  checkpoint_"),
    # order
    Mutant("commit before the payload is durable", PATCH,
           "if (auto synced = journal.sync_payload(dir); !synced) return Failed({std::move(synced.error()), false, true});",
           "static_cast<void>(dir);"),
    Mutant("the file is written before commit", PATCH,
           "  // The point of no return.\n",
           "  if (auto early = write_pieces(data, journal, pieces, buffer.get()); !early) return Failed({std::move(early.error()), false, true});\n"),
    Mutant("the journal is emptied before the file is written", PATCH,
           "  if (auto written = write_pieces", "  if (auto early = journal.retire(); !early) return Failed({std::move(early.error()), true, true});\n  if (auto written = write_pieces"),
    # hashes
    Mutant("the commit record's hash is not checked", LAYOUT,
           "  if (load_u64le(sector.data() + record_bytes) != hash64(sector.data(), record_bytes)) return JournalState::damaged;\n", ""),
    Mutant("the manifest's hash is not checked", RECOVER, "if (hash64(manifest.data(), n) != record.manifest_hash)", "if (false)"),
    Mutant("the payload's hash is not checked", RECOVER, "if (payload_hash.digest() != range.payload_hash)", "if (false)"),
    Mutant("the table's hash is not checked", RECOVER, "if (table_hash.digest() != range.sectors_hash)", "if (false)"),
    Mutant("old bytes are not checked", RECOVER, "if (!is_new && !is_old && foreign.empty())", "if (false)"),
    Mutant("the file's identity is not checked", RECOVER, "if (*identity != record.identity)", "if (false)"),
    Mutant("the header is no part of the identity", "core/write/identity.cpp", "  id.header_hash = hasher.digest();", "  id.header_hash = 0;"),
    # bounds and trust
    Mutant("ranges may lie outside the data", LAYOUT, "if (r.length == 0 || !inside(r.offset, r.length, end_of_last, identity.size))", "if (false)"),
    Mutant("payloads may lie outside the journal", LAYOUT, "if (!inside(r.payload, r.length, header_bytes, journal_bytes))", "if (false)"),
    Mutant("tables may lie outside the journal", LAYOUT,
           "if (!inside(r.sectors, sectors_of(r.offset, r.length) * sizeof(uint32_t), header_bytes, journal_bytes))", "if (false)"),
    Mutant("the manifest may lie outside the journal", RECOVER,
           "if (record.ranges > orphan_.size / range_record_bytes || record.manifest > orphan_.size || n > orphan_.size - record.manifest)", "if (false)"),
    Mutant("a journal with a second link is trusted", RECOVER, "else if (s.st_nlink > 1)", "else if (false)"),
    Mutant("a link instead of a journal is followed", RECOVER, "if (!S_ISREG(s.st_mode))", "if (false)"),
    Mutant("anybody's journal is trusted", FOLDER, "  if (s.st_uid != self && s.st_uid != data.st_uid && s.st_uid != 0)\n", "  if (false)\n"),
    Mutant("a journal that anybody may write is trusted", FOLDER, "if (s.st_mode & S_IWOTH) return", "if (false) return"),
    # locks
    Mutant("recovery does not lock the file", RECOVER,
           "    auto lock = os::RangeLock::acquire(exclusive->file, {{0, 0, true}}, wait);", "    static_cast<void>(wait);\n    Result<os::RangeLock> lock = os::RangeLock();"),
    Mutant("cleaning up drops journals that are being filled", RECOVER,
           "  if (!lock && lock.error().status == Status::busy) return false;\n  if (!lock) return Failure(std::move(lock.error()));\n", ""),
    Mutant("a living writer's journal counts as an orphan", RECOVER, "      if (*locked) continue;\n", ""),
    Mutant("a writer that ends while one looks counts as an orphan", RECOVER,
           "      if (found.waits())\n        if (auto read = read_state(found); !read) return Failure(std::move(read.error()));\n", ""),
    Mutant("a patch cuts the file inside sectors", PATCH,
           "up_to_sector(piece.offset + done, chunk, piece.payload.length - done)", "std::min(chunk, piece.payload.length - done)"),
    Mutant("a recovery cuts the file inside sectors", RECOVER,
           "up_to_sector(range.offset + done, chunk, range.length - done)", "std::min(chunk, range.length - done)"),
    Mutant("a journal of another inode is applied unseen", RECOVER, "if (!same_inode && !touched_)", "if (false)"),
    Mutant("a journal of another inode is never applied", RECOVER, "if (!same_inode && !touched_)", "if (!same_inode)"),
    Mutant("a journal in a folder that was moved is used", FOLDER, "if (journal && is_beside(*journal))", "if (journal)"),
    Mutant("a child takes its parent's journals", FOLDER, "  forget_if_forked();\n  Error last;", "  Error last;"),
    Mutant("a transaction does not lock its tensors", TRANSACTION,
           "  for (const Staged &s : staged_) ranges.push_back({s.piece.offset, s.piece.payload.length, true});\n", ""),
    Mutant("a transaction does not hold off recovery", TRANSACTION,
           "std::vector<os::LockRange> ranges{{0, snapshot_->header.data_offset(), false}};", "std::vector<os::LockRange> ranges;"),
    Mutant("a transaction does not look for orphans", TRANSACTION, "  if (orphans->committed) {", "  if (false) {"),
    Mutant("a transaction does not look whether the file was replaced", TRANSACTION, "  if (*replaced) return nullptr;\n", ""),
    Mutant("a transaction does not look whether the header was rewritten", TRANSACTION, "  if (*identity != known) {", "  if (false) {"),
    # new files
    Mutant("a new file is not synced before it is renamed", REPLACEMENT, "  if (auto synced = file_.sync(); !synced) return Failed({std::move(synced.error()), false});\n", ""),
    Mutant("a rename is not synced", REPLACEMENT, "if (auto synced = dir_.sync(); !synced) return Failed({std::move(synced.error()), true});", ";"),
    Mutant("a temporary of a dead writer stays", REPLACEMENT, "if (excludes && *excludes) env.unlinkat(dir.fd(), name.c_str(), 0);", "static_cast<void>(excludes);"),
    Mutant("a failed writer leaves its temporary", REPLACEMENT, "if (named_ && file_.env().getpid() == process_) dir_.env().unlinkat(dir_.fd(), temporary_.c_str(), 0);", ""),
    Mutant("a publish does not lock the whole file", TRANSACTION, "if (publishes()) ranges = {{0, 0, true}};", "if (publishes()) ranges.clear();"),
    Mutant("a publish forgets what was staged for a patch", PUBLISH, "    changes_.push_back(std::move(change));\n  }\n  staged_.clear();", "  }\n  staged_.clear(); return {};"),
    Mutant("a publish copies before its payloads are in the journal", PUBLISH, "  if (journal_.journal)\n    if (auto flushed = journal_.journal->flush(); !flushed) return flushed;\n", ""),
    Mutant("a file whose name was not synced is called durable", PUBLISH, "  if (placed) return {};\n  checkpoint_.poisoned_ = true;", "  return {};"),
    Mutant("data begins where nothing can be shared", PLAN, "next_congruent(least, best.rest, options.block)", "next_congruent(least, best.rest + 8, options.block)"),
    Mutant("blocks are shared that lie apart", TRANSFER, "if (block == 0 || range.from % block != range.to % block) return {};", "if (block == 0) return {};"),
    Mutant("the edges of shared blocks are not copied", TRANSFER, "if (edge.length == 0) continue;", "continue;"),
    Mutant("a save does not lock what it replaces", WRITER, "    auto locked = lock_whole_file(env_, target_, wait);", "    Result<std::unique_ptr<Exclusive>> locked = fail(Status::lock_unsupported, \"\");"),
]


def change(text: str, old: str, new: str):
    """`text` with its only `old` replaced, however lines are broken; None if it is not there once."""
    places = [i for i, c in enumerate(text) if not c.isspace()]
    dense, wanted = "".join(text[i] for i in places), "".join(old.split())
    if dense.count(wanted) != 1:
        return None
    at = dense.index(wanted)
    return text[: places[at]] + new + text[places[at + len(wanted) - 1] + 1 :]


class Workshop:
    """A copy of the sources with a build folder of its own."""

    def __init__(self, folder: pathlib.Path):
        self.source, self.build = folder / "source", folder / "build"
        shutil.rmtree(self.source, ignore_errors=True)
        self.source.mkdir(parents=True)
        for name in ["core", "capi", "tests", "bindings", "meson.build", "meson_options.txt"]:
            path = ROOT / name
            (shutil.copytree if path.is_dir() else shutil.copy2)(path, self.source / name)
        if not (self.build / "build.ninja").exists():
            subprocess.run(["meson", "setup", str(self.build), str(self.source), "--buildtype=plain", "-Doptimization=1", "-Dwerror=false", "-Dtests=true", "-Dcli=false"],
                           check=True, stdout=subprocess.DEVNULL)
        targets = subprocess.run(["ninja", "-C", str(self.build), "-t", "targets", "all"], check=True, capture_output=True, text=True).stdout
        self.programs = [line.split(":")[0] for line in targets.splitlines() if pathlib.PurePath(line.split(":")[0]).name in SUITES]

    def make(self) -> bool:
        return subprocess.run(["ninja", "-C", str(self.build), *self.programs], capture_output=True).returncode == 0

    def killers(self, every: bool = False) -> list:
        """The suites that go red."""
        red = []
        for program in self.programs:
            try:
                # A mutant may hang or eat memory; both count as noticed.
                run = subprocess.run(["prlimit", "--as=8589934592", str(self.build / program), "--gtest_break_on_failure=0", "--gtest_fail_fast"],
                                     capture_output=True, timeout=120, cwd=self.source)
                failed = run.returncode != 0
            except subprocess.TimeoutExpired:
                failed = True
            if failed:
                red.append(os.path.basename(program))
                if not every:
                    break
        return red


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--build", default=str(ROOT / "build" / "mutants"))
    arguments = parser.parse_args()

    shop = Workshop(pathlib.Path(arguments.build))
    if not shop.make():
        sys.exit("mutants: the unchanged sources do not build")
    if red := shop.killers(every=True):
        sys.exit(f"mutants: the unchanged sources fail {red}")

    survived = 0
    chosen = [m for m in MUTANTS if arguments.only in m.name]
    print(f"| {'mutant':66} | killed by |\n|{'-' * 68}|{'-' * 20}|")
    for mutant in chosen:
        path = shop.source / mutant.file
        text = path.read_text()
        changed = change(text, mutant.old, mutant.new)
        if changed is None:
            verdict = f"STALE: its text does not stand once in {mutant.file}"
        else:
            path.write_text(changed)
            verdict = "the compiler" if not shop.make() else ", ".join(shop.killers()) or "SURVIVED"
            path.write_text(text)
        survived += verdict.isupper() or verdict.startswith(("STALE", "the compiler"))
        print(f"| {mutant.name:66} | {verdict} |", flush=True)
    print(f"{len(chosen) - survived} passed, {survived} failed")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
