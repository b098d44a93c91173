// The header: any bytes as its JSON. The fast scanner, in windows of any size,
// and the full parser must agree to the last number; what they accept must be
// found, lie without holes, take bounded memory, and survive being written anew.
#include <algorithm>
#include <string>
#include <vector>

#include "format/header.h"
#include "format/scan_header.h"
#include "require.h"
#include "serialise_header.h"

namespace st::fuzz {
namespace {

Result<Header> parse(const std::string &json, uint64_t file_size, char padding = '"') {
  const std::string room = json + '\0' + std::string(header_padding - 1, padding);
  return parse_header(room.data(), json.size(), file_size, 1);
}

// What a catalogue says, as text; tensors sorted, since several without bytes may begin at one place.
std::string described(const Index &index) {
  std::vector<std::string> lines;
  for (size_t i = 0; i < index.size(); ++i) {
    const TensorView t = index.at(i);
    std::string line = text(std::string(t.name), '\t', dtype_name(t.dtype), ' ', t.begin, '+', t.nbytes);
    for (uint64_t dim : t.shape) line += text(' ', dim);
    lines.push_back(std::move(line));
  }
  std::sort(lines.begin(), lines.end());
  for (size_t i = 0; i < index.metadata_size(); ++i)
    lines.push_back(text(std::string(index.metadata_at(i).first), '=', std::string(index.metadata_at(i).second)));
  std::string all;
  for (const std::string &line : lines) all += line + '\n';
  return all;
}
std::string described(const Result<Index> &index) {
  return index ? described(*index) : text("status ", static_cast<int>(index.error().status));
}

// Windows of `size` bytes; nothing if the scanner leaves it to the parser.
std::optional<Result<Index>> scan(const std::string &json, size_t size) {
  IndexBuilder builder(7, json.size());
  HeaderScanner scanner(builder);
  std::string window;
  for (size_t done = 0; done < json.size() || !window.empty();) {
    const size_t take = std::min(size - window.size(), json.size() - done);
    window.append(json, done, take);
    done += take;
    const std::string room = window + std::string(header_padding, '\0');
    const auto taken = scanner.take({room.data(), window.size()}, done == json.size());
    if (!taken) return std::nullopt;
    REQUIRE(*taken <= window.size(), "took ", *taken, " of ", window.size());
    window.erase(0, *taken);
  }
  if (!scanner.finished()) return std::nullopt;
  return builder.finish();
}

// The same header with a letter spelled as an escape, which the scanner leaves to the parser; nothing if it has no
// letter. `json` has no escapes.
std::optional<std::string> respelled(std::string json) {
  for (size_t quote = json.find('"'); quote != std::string::npos; quote = json.find('"', quote + 1)) {
    const char letter = json[quote + 1];
    quote = json.find('"', quote + 1);
    if (letter < '0' || letter > 'z') continue;
    const size_t at = json.rfind('"', quote - 1) + 1;
    constexpr char hex[] = "0123456789abcdef";
    return json.replace(at, 1, std::string("\\u00") + hex[letter >> 4] + hex[letter & 15]);
  }
  return std::nullopt;
}

void check_readers_agree(const std::string &json, const Result<Header> &full, size_t window) {
  const auto whole = scan(json, std::max<size_t>(json.size(), 1));
  if (!whole) {
    REQUIRE(!scan(json, window), "windows of ", window, " bytes are read, the whole is not");
    return;
  }
  const std::string by_scanner = described(*whole);
  if (!*whole) REQUIRE(!full && full.error().status == whole->error().status, said(*whole), " | ", said(full));
  if (const auto parts = scan(json, window))
    REQUIRE(described(*parts) == by_scanner, described(*parts), " | ", by_scanner);
  const auto other = respelled(json);
  if (!other) return;
  REQUIRE(!scan(*other, other->size()), "the scanner takes escapes: this compares it with itself");
  const uint64_t need = *whole ? (*whole)->data_bytes() : 0;
  const Result<Header> by_parser = parse(*other, length_bytes + other->size() + need);
  if (!*whole)
    REQUIRE(!by_parser && by_parser.error().status == whole->error().status, said(*whole), " | ", said(by_parser));
  else if (need <= UINT64_MAX - length_bytes - other->size())
    REQUIRE(by_parser && described(by_parser->index) == by_scanner, said(by_parser), " | ", by_scanner);
}

void check_catalogue(const Header &header, uint64_t json_bytes) {
  const Index &index = header.index;
  uint64_t at = 0;
  for (size_t i = 0; i < index.size(); ++i) {
    const TensorView t = index.at(i);
    REQUIRE(t.begin == at, "tensor ", i, " begins at ", t.begin, ", not at ", at);
    at += t.nbytes;
    const auto nbytes = tensor_nbytes(t.dtype, t.shape);
    REQUIRE(nbytes && *nbytes == t.nbytes, said(nbytes));
    REQUIRE(t.name.data()[t.name.size()] == '\0', "no NUL behind name ", i);
    REQUIRE(index.find(t.name) == i, "tensor ", i, " is not found");
  }
  REQUIRE(at == index.data_bytes(), at, " of ", index.data_bytes());
  for (size_t i = 0; i < index.metadata_size(); ++i) {
    const auto [key, value] = index.metadata_at(i);
    REQUIRE(index.metadata_find(key) == value, "key ", i, " is not found");
  }
  REQUIRE(index.memory_bytes() <= 4096 + 16 * json_bytes, index.memory_bytes(), " bytes for ", json_bytes);
}

void check_round_trip(const Header &header) {
  const Index &index = header.index;
  std::vector<HeaderTensor> tensors;
  for (size_t i = 0; i < index.size(); ++i) {
    const TensorView t = index.at(i);
    tensors.push_back({t.name, t.dtype, t.shape, t.begin, t.nbytes});
  }
  std::vector<std::pair<std::string_view, std::string_view>> metadata;
  for (size_t i = 0; i < index.metadata_size(); ++i) metadata.push_back(index.metadata_at(i));
  const auto written = testing::serialise_header(tensors, metadata);
  if (!written) {
    const bool too_far = index.data_bytes() > uint64_t{1} << 63 || index.data_bytes() + (1 << 20) > uint64_t{1} << 63;
    REQUIRE(too_far && written.error().status == Status::offsets, said(written));
    return;
  }
  REQUIRE(written->size() % st::write::default_alignment == 0, written->size());
  const std::string json = written->substr(length_bytes);
  REQUIRE(load_u64le(written->data()) == json.size(), json.size());
  const auto again = parse(json, written->size() + index.data_bytes());
  REQUIRE(again, said(again));
  REQUIRE(described(again->index) == described(index), described(again->index), " | ", described(index));
  const auto scanned = scan(json, json.size());
  if (scanned) REQUIRE(described(*scanned) == described(index), described(*scanned));
}

void run(const std::string &json) {
  // A file that never ends tells how much data the catalogue wants.
  const Result<Header> endless = parse(json, UINT64_MAX);
  const Result<Header> endless_too = parse(json, UINT64_MAX, ' ');
  REQUIRE(!endless && !endless_too && endless.error().status == endless_too.error().status,
          "what follows the header counts: ", said(endless), " | ", said(endless_too));
  check_readers_agree(json, endless, 1 + json.size() % 61 + json.size() / 3);
  if (endless.error().status != Status::trailing_data) return;

  const uint64_t end = endless.error().offset;
  const Result<Header> header = parse(json, end);
  REQUIRE(header, said(header));
  REQUIRE(header->data_offset() + header->index.data_bytes() == end, end);
  if (header->index.data_bytes() > 0) {
    const auto cut = parse(json, end - 1);
    REQUIRE(!cut && cut.error().status == Status::truncated, said(cut));
  }
  const auto grown = parse(json, end + 1);
  REQUIRE(!grown && grown.error().status == Status::trailing_data, said(grown));
  check_catalogue(*header, json.size());
  check_round_trip(*header);
}

}  // namespace
}  // namespace st::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  st::fuzz::run({reinterpret_cast<const char *>(data), size});
  return 0;
}
