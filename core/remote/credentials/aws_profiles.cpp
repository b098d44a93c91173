#include "remote/credentials/aws_profiles.h"

#include "base/ascii.h"
#include "remote/url.h"

namespace st::remote {
namespace {

using Sections = std::map<std::string, std::map<std::string, std::string>>;

// "profile NAME", as it stands in one of the two files; a name with blanks in it is quoted.
std::string profile_in(std::string_view section) {
  const auto words = words_of(section);
  if (words.size() == 2 && words[0] == "profile") return words[1];
  return std::string(section.starts_with("profile ") ? trimmed(section.substr(8)) : section);
}

// Sections of an INI file. Lines that are indented further than the key before them belong to it: "KEY.THEIRS".
Sections sections_of(const std::string &text) {
  Sections all;
  Sections::mapped_type *now = nullptr;
  size_t indent_of_key = text.npos;  // npos: none stands in the section so far
  std::string key;
  constexpr std::string_view utf_8 = "\xef\xbb\xbf";  // an editor may have marked the file so
  for (size_t from = text.starts_with(utf_8) ? utf_8.size() : 0; from < text.size();) {
    const size_t end = std::min(text.find('\n', from), text.size());
    const std::string_view line(text.data() + from, end - from);
    from = end + 1;
    const std::string_view plain = trimmed(line);
    if (plain.empty() || plain[0] == '#' || plain[0] == ';') continue;
    if (plain[0] == '[') {
      now = &all[profile_in(trimmed(plain.substr(1, plain.find(']') - 1)))];
      indent_of_key = text.npos;
      continue;
    }
    const size_t indent = line.find_first_not_of(" \t");
    const bool is_below = indent_of_key != text.npos && indent > indent_of_key;
    const size_t equals = plain.find_first_of(is_below ? "=" : "=:");  // as botocore reads them
    std::string name = lower(trimmed(plain.substr(0, equals)));
    if (is_below) {
      name.insert(0, key + '.');
    } else {
      indent_of_key = indent;
      key = name;
    }
    if (!now || equals == plain.npos) continue;
    (*now)[name] = trimmed(plain.substr(equals + 1));
  }
  return all;
}

}  // namespace

Result<AwsProfiles> AwsProfiles::read(const Surroundings &from) {
  AwsProfiles out;
  const auto given = from.first({"AWS_PROFILE", "AWS_DEFAULT_PROFILE"});
  out.name_ = given.value_or("default");
  const std::string home = from.variable("HOME").value_or("");
  std::string files[] = {from.path("AWS_SHARED_CREDENTIALS_FILE"), from.path("AWS_CONFIG_FILE")};
  if (files[0].empty()) files[0] = home + "/.aws/credentials";
  if (files[1].empty()) files[1] = home + "/.aws/config";
  for (const std::string &path : files) {
    auto text = from.file(path);
    if (!text) continue;
    for (auto &[name, section] : sections_of(*text))
      for (auto &[key, value] : section) {
        out.all_[name].emplace(key, value);
        wipe(value);
      }
    wipe(*text);
  }
  if (given && !out.has(out.name_))
    return fail(Status::permission, "there is no AWS profile ", in_quotes(out.name_), " in ", in_quotes(files[0]),
                " or ", in_quotes(files[1]), "; set AWS_PROFILE to one that is there");
  return out;
}

AwsProfiles::~AwsProfiles() {
  for (auto &[name, section] : all_)
    for (auto &[key, value] : section) wipe(value);
}

std::string AwsProfiles::value(const std::string &profile, const char *key) const {
  const auto section = all_.find(profile);
  if (section == all_.end()) return {};
  const auto found = section->second.find(key);
  return found == section->second.end() ? std::string() : found->second;
}

std::string aws_region(const Surroundings &from, const AwsProfiles &profiles) {
  if (const auto given = from.first({"AWS_REGION", "AWS_DEFAULT_REGION"})) return *given;
  const std::string own = profiles.value(profiles.name(), "region");
  return own.empty() ? "us-east-1" : own;
}

bool aws_wants(const Surroundings &from, const AwsProfiles &profiles, const std::string &name) {
  std::string variable = "AWS_" + name;
  std::transform(variable.begin(), variable.end(), variable.begin(), [](unsigned char c) { return std::toupper(c); });
  return lower(from.variable(variable).value_or(profiles.value(profiles.name(), name.c_str()))) == "true";
}

std::string aws_endpoint(const Surroundings &from, const AwsProfiles &profiles, const std::string &service) {
  if (aws_wants(from, profiles, "ignore_configured_endpoint_urls")) return {};
  const std::string own = "AWS_ENDPOINT_URL_" + service, &profile = profiles.name();
  if (const auto given = from.first({own.c_str(), "AWS_ENDPOINT_URL"})) return without_slash(*given);
  const std::string services = "services " + profiles.value(profile, "services");
  const std::string of_service = profiles.value(services, (lower(service) + ".endpoint_url").c_str());
  return without_slash(of_service.empty() ? profiles.value(profile, "endpoint_url") : of_service);
}

std::string amazon(const std::string &service, const std::string &region) {
  constexpr std::pair<std::string_view, std::string_view> partitions[] = {
      {"cn-", "amazonaws.com.cn"},   {"eusc-", "amazonaws.eu"},      {"us-iso-", "c2s.ic.gov"},
      {"us-isob-", "sc2s.sgov.gov"}, {"us-isof-", "csp.hci.ic.gov"}, {"eu-isoe-", "cloud.adc-e.uk"}};
  std::string_view domain = "amazonaws.com";
  for (const auto &[regions, theirs] : partitions)
    if (region.starts_with(regions)) domain = theirs;
  return text("https://", service, ".", region, ".", domain);
}

}  // namespace st::remote
