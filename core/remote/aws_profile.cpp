#include "remote/aws_profile.h"

#include <map>

#include "remote/ascii.h"

namespace st::remote {
namespace {

using Section = std::map<std::string, std::string>;

// Sections of an INI file. Indented lines belong to the key before them, and no key that is taken here has such.
std::map<std::string, Section> sections_of(const std::string &text) {
  std::map<std::string, Section> all;
  Section *now = nullptr;
  for (size_t from = 0; from < text.size();) {
    const size_t end = std::min(text.find('\n', from), text.size());
    const std::string_view line(text.data() + from, end - from);
    from = end + 1;
    const std::string_view plain = trimmed(line);
    if (plain.empty() || plain[0] == '#' || plain[0] == ';') continue;
    if (plain[0] == '[') {
      std::string_view name = trimmed(plain.substr(1, plain.find(']') - 1));
      if (name.starts_with("profile ")) name = trimmed(name.substr(8));
      now = &all[std::string(name)];
      continue;
    }
    const size_t equals = plain.find('=');
    if (!now || equals == plain.npos || line[0] == ' ' || line[0] == '\t') continue;
    (*now)[std::string(trimmed(plain.substr(0, equals)))] = trimmed(plain.substr(equals + 1));
  }
  return all;
}

// The profile of both files; the credentials' file counts first.
Result<Section> profile_section(const Surroundings &from, std::string &name) {
  const std::string home = from.variable("HOME").value_or("");
  const auto given = from.first({"AWS_PROFILE", "AWS_DEFAULT_PROFILE"});
  name = given.value_or("default");
  const std::string files[] = {from.variable("AWS_SHARED_CREDENTIALS_FILE").value_or(home + "/.aws/credentials"),
                               from.variable("AWS_CONFIG_FILE").value_or(home + "/.aws/config")};
  Section all;
  bool there = false;
  for (const std::string &path : files) {
    const auto text = from.file(path);
    if (!text) continue;
    const auto sections = sections_of(*text);
    const auto found = sections.find(name);
    if (found == sections.end()) continue;
    there = true;
    all.insert(found->second.begin(), found->second.end());
  }
  if (given && !there)
    return fail(Status::permission, "there is no AWS profile ", in_quotes(name), " in ", in_quotes(files[0]), " or ",
                in_quotes(files[1]), "; set AWS_PROFILE to one that is there");
  return all;
}

std::string without_slash(std::string text) {
  while (text.ends_with('/')) text.pop_back();
  return text;
}

}  // namespace

Result<AwsProfile> aws_profile(const Surroundings &from) {
  AwsProfile out;
  std::string name;
  ST_TRY(auto section, profile_section(from, name));
  const auto value = [&](const char *key) -> std::string {
    const auto found = section.find(key);
    return found == section.end() ? std::string() : found->second;
  };

  if (const auto region = from.first({"AWS_REGION", "AWS_DEFAULT_REGION"}))
    out.region = *region;
  else if (const std::string own = value("region"); !own.empty())
    out.region = own;
  out.endpoint = without_slash(from.first({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}).value_or(value("endpoint_url")));

  const auto id = from.variable("AWS_ACCESS_KEY_ID"), secret = from.variable("AWS_SECRET_ACCESS_KEY");
  if (id.has_value() != secret.has_value())
    return fail(Status::permission, "of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY only one is set; set both");
  if (id) {
    out.keys = Keys{*id, *secret, from.variable("AWS_SESSION_TOKEN").value_or("")};
    out.found_in = "the environment";
    return out;
  }
  if (const std::string key = value("aws_access_key_id"); !key.empty()) {
    if (value("aws_secret_access_key").empty())
      return fail(Status::permission, "the AWS profile ", in_quotes(name),
                  " has an aws_access_key_id without an aws_secret_access_key");
    out.keys = Keys{key, value("aws_secret_access_key"), value("aws_session_token")};
    out.found_in = "the profile " + in_quotes(name);
    return out;
  }
  for (const char *kind : {"role_arn", "sso_session", "sso_start_url", "credential_process", "web_identity_token_file"})
    if (!value(kind).empty())
      return fail(
          Status::permission, "the AWS profile ", in_quotes(name), " gets its keys by ", kind,
          ", which libst does not; run `aws configure export-credentials --format env` and export what it says");
  return out;
}

}  // namespace st::remote
