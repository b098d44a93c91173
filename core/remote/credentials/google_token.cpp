#include "remote/credentials/google_token.h"

#include "base/ascii.h"
#include "remote/credentials/jwt.h"
#include "remote/url.h"

namespace st::remote {
namespace {

constexpr std::string_view googles = "Google's token service";

// Where an account's file says to ask. Status permission: where its secrets must not go.
Result<std::string> token_url(const Surroundings &from, const Json &file, const char *pointer) {
  std::string url = file.text(pointer);
  if (url.empty()) url = "https://oauth2.googleapis.com/token";
  if (!from.may_be_plain(url))
    return fail(Status::permission, "the account wants to be asked for at ", in_quotes(without_secrets(url)),
                ", which is not encrypted");
  return url;
}

// https://developers.google.com/identity/protocols/oauth2/service-account
Result<Granted> service_account(const Surroundings &from, const Json &file, int64_t now,
                                std::string_view scope = google_scope) {
  ST_TRY(const auto url, token_url(from, file, "/token_uri"));
  const std::string mail = file.text("/client_email");
  const Secret key = file.text("/private_key");
  if (!sign_rs256("", key))
    return fail(Status::permission, "the service account ", in_quotes(mail), " has no private key that can be read");
  return token_in(
      ask_at_its_time(from.ask, now,
                      [&](int64_t time) {
                        const std::string claims = text(R"({"iss":")", mail, R"(","scope":")", scope, R"(","aud":")",
                                                        url, R"(","iat":)", time, R"(,"exp":)", time + 3600, "}");
                        return post(url, form({{"grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"},
                                               {"assertion", *jwt_rs256(claims, key)}}));
                      }),
      now, googles, "the service account " + in_quotes(mail));
}

Result<Granted> authorized_user(const Surroundings &from, const Json &file, int64_t now) {
  ST_TRY(const auto url, token_url(from, file, "/token_uri"));
  const Secret secret = file.text("/client_secret"), refresh = file.text("/refresh_token");
  return token_in(from.ask(post(url, form({{"grant_type", "refresh_token"},
                                           {"client_id", file.text("/client_id")},
                                           {"client_secret", secret.shown_to_the_store()},
                                           {"refresh_token", refresh.shown_to_the_store()}}))),
                  now, googles, "the user of `gcloud auth application-default login`");
}

// `gcloud auth application-default login --impersonate-service-account`
Result<Granted> impersonated_account(const Surroundings &from, const Json &file, int64_t now) {
  const auto source = file.part("/source_credentials");
  const std::string type = source ? source->text("/type") : "";
  if (type != "service_account" && type != "authorized_user")
    return fail(Status::permission, "the impersonated service account has no source_credentials that libst knows");
  ST_TRY(const auto by, type == "service_account" ? service_account(from, *source, now, cloud_platform)
                                                  : authorized_user(from, *source, now));
  return impersonated(from, file, by, "the impersonated service account");
}

Origin of_file(const Surroundings &from, const std::string &path) {
  return {"google " + path, [=](int64_t now) -> Result<Granted> {
            const auto file = from.json_in(path);
            const std::string type = file ? file->text("/type") : "";
            auto out = [&]() -> Result<Granted> {
              if (type == "service_account") return service_account(from, *file, now);
              if (type == "authorized_user") return authorized_user(from, *file, now);
              if (type == "external_account") return external_account(from, *file);
              if (type == "impersonated_service_account") return impersonated_account(from, *file, now);
              return fail(Status::permission, in_quotes(path), " has no Google account that libst knows",
                          type.empty() ? "" : "; it is of the type " + in_quotes(type));
            }();
            if (out)
              out->keys->id = from.variable("GOOGLE_CLOUD_QUOTA_PROJECT").value_or(file->text("/quota_project_id"));
            return out;
          }};
}

Origin metadata_server(const Surroundings &from) {
  if (from.is_true("NO_GCE_CHECK")) return nobodys_keys();
  const std::string root = text("http://", from.variable("GCE_METADATA_HOST").value_or("169.254.169.254"), "/"),
                    url = root + "computeMetadata/v1/instance/service-accounts/default/token";
  return {"google " + url, [=](int64_t now) -> Result<Granted> {
            const Granted nobody{.ends = now + nobody_there};
            const auto beside = [](const std::string &what) {
              Question question = get(what, {"metadata-flavor: Google"});
              question.request.no_proxy = true;
              return question;
            };
            // Is it there? So that a laptop does not wait. The first token of a machine may take long.
            Question probe = beside(root);
            probe.within_ms = from.number("GCE_METADATA_TIMEOUT", 1) * 1000;
            probe.tries = 1;
            const Answer there = from.ask(probe);
            if (there.cut != Cut::none || there.head.field("metadata-flavor") != "Google") return nobody;
            Answer answer = from.ask(beside(url));
            if (answer.cut == Cut::none && answer.head.code == 404) return nobody;  // a machine without an account
            return token_in(std::move(answer), now, "Google's metadata server", "this machine's service account");
          }};
}

}  // namespace

Result<Origin> google_token(const Surroundings &from) {
  if (const auto path = from.variable("GOOGLE_APPLICATION_CREDENTIALS")) {
    if (!from.file(*path))
      return fail(Status::permission, in_quotes(*path), ", which GOOGLE_APPLICATION_CREDENTIALS names, cannot be read");
    return of_file(from, *path);
  }
  const std::string path =
      from.variable("CLOUDSDK_CONFIG").value_or(from.variable("HOME").value_or("") + "/.config/gcloud") +
      "/application_default_credentials.json";
  if (from.file(path)) return of_file(from, path);
  return metadata_server(from);
}

}  // namespace st::remote
