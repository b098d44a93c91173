// stctl update: new bytes for tensors of a file, in place, as one transaction.
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "../cast.h"
#include "../commands.h"
#include "../handle.h"
#include "../input.h"
#include "../interrupt.h"
#include "../json.h"
#include "../npy.h"
#include "../number.h"
#include "../progress.h"
#include "../slice.h"
#include "../table.h"

namespace stctl {
namespace {

struct Update {
  std::string file;
  std::vector<std::string> names;
  std::string raw, npy, fill, from;  // one of them; which, say the options below
  std::string slice;
  Option has_raw, has_npy, has_fill, has_from, has_slice;
  bool cast = false;
  int32_t lock_timeout_ms = ST_TIMEOUT_DEFAULT;
};

// What --fill makes is staged in parts of about so many bytes, so that no more of it is in memory.
constexpr uint64_t fill_bytes = 64 << 20;

// The new tensors, and whatever their bytes lie in.
struct Payload {
  std::vector<st_tensor> tensors;
  std::optional<Input> input;
  std::optional<Npy> npy;
  std::string bytes;
  std::unique_ptr<File> from;
  std::optional<Slice> slice;  // of the one tensor
  std::string fill;            // its elements, if they are not in `bytes`

  void update(Transaction &transaction, const st_tensor &tensor, Progress &progress) const {
    if (slice && !fill.empty()) {
      std::string pattern;  // the first part is the longest, and all begin alike
      slice->each_part(fill_bytes, [&](const Slice::Part &part) {
        if (part.nbytes > pattern.size()) pattern = filled(tensor.dtype, part.nbytes, fill);
        st_tensor value = tensor;
        value.shape = part.counts.data();
        value.data = pattern.data();
        value.nbytes = part.nbytes;
        transaction.update_slice(part.ranges, value);
        progress.part_done();
      });
    } else if (slice) {
      transaction.update_slice(slice->ranges(), tensor);
    } else {
      transaction.update(tensor);
    }
  }
};

void set_data(st_tensor &tensor, std::string_view bytes) {
  tensor.data = bytes.data();
  tensor.nbytes = bytes.size();
}

// Views of another file, passed on as they are. It may be the same one.
void take_from(Session &session, const Update &options, Payload &payload) {
  payload.from = std::make_unique<File>(session, options.from, FileOptions{.warns_later = true});
  const File &from = *payload.from;
  payload.tensors = from.views(from.find_each(options.names), session.quiet);
}

// One tensor of `file`, or a slice of it, with other bytes.
void take_one(const Update &options, const File &file, Payload &payload) {
  const size_t index = file.find(options.names[0]);
  st_tensor tensor = file.at(index);
  const bool in_parts = options.has_fill.given() && tensor.nbytes > fill_bytes;
  if (options.has_slice.given() || in_parts) {
    const Slice &slice = payload.slice.emplace(file, index, options.slice);
    tensor.shape = slice.counts().data();
    tensor.nbytes = slice.nbytes();
  }
  if (options.has_raw.given()) {
    payload.input.emplace(Input::read(
        options.raw, [&](std::string_view) { return tensor.nbytes; }, false));
    set_data(tensor, payload.input->bytes());
  } else if (options.has_npy.given()) {
    payload.input.emplace(Input::read(options.npy, npy_size, options.cast || looks_at_elements(tensor.dtype)));
    payload.npy = parse_npy(payload.input->bytes(), options.npy, tensor.dtype);
    set_data(tensor, payload.npy->data);
    tensor.dtype = payload.npy->dtype;
    // Numbers in a slice take dimensions away, for NumPy and not for C.
    if (!payload.slice || payload.npy->shape != payload.slice->shape()) {
      tensor.shape = payload.npy->shape.data();
      tensor.rank = static_cast<uint32_t>(payload.npy->shape.size());
    }
  } else if (in_parts) {
    filled(tensor.dtype, 1, options.fill);  // refuses what is no number
    payload.fill = options.fill;
  } else {
    payload.bytes = filled(tensor.dtype, tensor.nbytes, options.fill);
    set_data(tensor, payload.bytes);
  }
  payload.tensors.push_back(tensor);
}

// As elements of the dtype that the tensor has in the file. One tensor's are in memory at a time, as the transaction
// has ST_TXN_COPY.
void update_cast(const Session &session, const Payload &payload, Transaction &transaction, st_tensor tensor,
                 st_dtype to, Progress &progress) {
  const st_dtype from = tensor.dtype;
  std::string bytes;
  if (payload.from) {
    bytes = payload.from->bytes_of(tensor);
    tensor.data = bytes.data();
  }
  bytes = cast(name_of(tensor), tensor, to);
  set_data(tensor, bytes);
  tensor.dtype = to;
  if (!session.quiet) say(fmt::format("note: {}: {}", escape(name_of(tensor)), cast_text(from, to)));
  payload.update(transaction, tensor, progress);
}

void tell(Session &session, const File &file, const std::vector<st_tensor> &tensors, uint64_t nbytes) {
  const st_stats stats = file.stats();
  if (session.json) {
    Json json(session.out);
    json.begin_object();
    json.field("file", file.path());
    json.key("tensors");
    json.begin_array();
    for (const st_tensor &tensor : tensors) {
      json.begin_object();
      write_description(json, file, tensor);
      json.end_object();
    }
    json.end_array();
    json.field("count", uint64_t{tensors.size()});
    json.field("nbytes", nbytes);
    json.field("bytes_written", stats.bytes_written);
    json.field("journal_bytes", stats.journal_bytes);
    if (!file.is_one_file()) {
      std::set<std::string> shards;
      for (const st_tensor &tensor : tensors) shards.insert(file.file_name(tensor.shard));
      json.names("changed_shards", {shards.begin(), shards.end()});
    }
    json.end_object();
    session.out.write("\n");
    return;
  }
  Table table({{"", Table::left}, {"", Table::left}, {"", Table::left}, {"", Table::right}, {"", Table::left}});
  for (const st_tensor &tensor : tensors) {
    table.add({escape(name_of(tensor)), st_dtype_name(tensor.dtype), shape_text(tensor.shape, tensor.rank),
               human_size(tensor.nbytes), file.is_one_file() ? "" : escape(file.file_name(tensor.shard))});
  }
  table.write(session.out);
  session.out.print("updated {}, {} ({} journalled)\n", counted(tensors.size(), "tensor"), counted(nbytes, "byte"),
                    human_size(stats.journal_bytes));
}

int run(Session &session, const Update &options) {
  size_t sources = 0;
  for (const Option &option : {options.has_raw, options.has_npy, options.has_fill, options.has_from}) {
    sources += option.given() ? 1 : 0;
  }
  check_one_source(sources, "--from-raw, --npy, --fill and --from");
  if (!options.has_from.given() && options.names.size() != 1) {
    throw UsageFailure(
        fmt::format("--from-raw, --npy and --fill change one tensor, but {} were named", options.names.size()));
  }
  if (options.has_slice.given() && options.has_from.given()) {
    throw UsageFailure("--slice goes with --from-raw, --npy and --fill, not with --from");
  }
  refuse_empty_slice(options.has_slice, options.slice);
  // Nothing is read from it. `stats` would count the pages of a mapping that are in memory: in a large file that takes
  // long.
  const File file(session, options.file,
                  {.write = true, .map = ST_MAP_NONE, .lock_timeout_ms = options.lock_timeout_ms});
  const Interruptible guard(file.get());
  Payload payload;
  if (options.has_from.given()) {
    take_from(session, options, payload);
  } else {
    take_one(options, file, payload);
  }
  uint64_t nbytes = 0;
  std::map<size_t, st_tensor> changed;  // by place in the file: a tensor named twice is one change
  std::vector<st_dtype> dtypes;         // that the tensors have in the file
  bool casts = false;
  for (const st_tensor &tensor : payload.tensors) {
    const size_t i = file.find_exactly(name_of(tensor));
    const st_tensor there = file.at(i);
    if (changed.emplace(i, there).second) nbytes += there.nbytes;
    dtypes.push_back(there.dtype);
    casts |= options.cast && tensor.dtype != there.dtype;
  }

  if (payload.slice) nbytes = payload.slice->nbytes();

  throw_if_interrupted();
  Progress progress(session.quiet, "updating", 2 * nbytes);  // into the journal, then into the file
  auto opts = sized<st_txn_options>();
  opts.lock_timeout_ms = options.lock_timeout_ms;
  opts.progress = Progress::callback;
  opts.progress_user = &progress;
  if (casts) opts.flags |= ST_TXN_COPY;
  Transaction transaction(file, opts);
  for (size_t i = 0; i < payload.tensors.size(); ++i) {
    const st_tensor &tensor = payload.tensors[i];
    if (options.cast && tensor.dtype != dtypes[i]) {
      update_cast(session, payload, transaction, tensor, dtypes[i], progress);
    } else {
      payload.update(transaction, tensor, progress);
    }
    progress.part_done();
  }
  transaction.commit();
  forget_interrupt();  // it came too late: what has been done is told

  std::vector<st_tensor> tensors;
  for (const auto &[i, tensor] : changed) tensors.push_back(tensor);
  tell(session, file, tensors, nbytes);
  return exit_ok;
}

}  // namespace

void add_update(CommandLine &line, Session &session) {
  auto options = std::make_shared<Update>();
  const Command command =
      line.command("update",
                   "New values for tensors, in place, as one transaction\n\n"
                   "Replaces the bytes of one tensor, or of many with those of another file; dtype and\n"
                   "shape stay. All of it is durable when the command ends with 0. Else nothing has\n"
                   "changed, but for two codes: after 6 the change may have been made, and after 4 it,\n"
                   "or one before it, waits to be finished. A crash in between is sorted out when the\n"
                   "file is next opened. Only the bytes that change are written, so this costs the same\n"
                   "in a large file as in a small one. Other processes may read the file meanwhile, and\n"
                   "update other tensors of it, or other parts of the same one.",
                   "  stctl update model.safetensors lm_head.weight --npy new.npy\n"
                   "  stctl update model.safetensors lm_head.weight --fill 0\n"
                   "  stctl update model.safetensors embed.weight --slice 10:20 --npy ten_rows.npy\n"
                   "  generate | stctl update model.safetensors lm_head.weight --from-raw -\n"
                   "  stctl update model.safetensors --from tuned.safetensors          all of its tensors\n"
                   "  stctl update model.safetensors --from tuned.safetensors 'lm_head.weight'\n");
  command.argument("FILE", options->file, "The safetensors file to change").required();
  command.argument("TENSOR", options->names,
                   "Names of tensors: one; with --from any number, none for all\n"
                   "that the other file has");
  const auto source = [command](const char *name, std::string &value, const char *type, const char *what) {
    return command.option(name, value, type, what);
  };
  options->has_raw =
      source("--from-raw", options->raw, "FILE", "Little-endian elements in C order; - is standard input").not_empty();
  options->has_npy = source("--npy", options->npy, "FILE", "A NumPy file of the tensor's dtype and shape").not_empty();
  options->has_fill =
      source("--fill", options->fill, "VALUE", "One number for all elements; of floats it is rounded to the dtype");
  options->has_from =
      source("--from", options->from, "FILE", "Tensors of the same names of another safetensors file").not_empty();
  options->has_slice =
      command.option("--slice", options->slice, "SLICE", "Only these elements of the tensor, as stctl get takes them");
  command.flag("--cast", options->cast,
               "Take elements of other dtypes, too, and round each to the nearest\n"
               "that the tensor can hold, ties to even; see stctl put");
  command.lock_timeout(options->lock_timeout_ms);
  command.runs(session, [&session, options] { return run(session, *options); });
}

}  // namespace stctl
