// stctl generate: the man page and the shells' completions, from the options that all
// other commands declare. For the build, so it is not in --help.
#include <map>
#include <memory>

#include "../commands.h"
#include "../completion.h"
#include "../exit_code.h"
#include "../manual.h"

namespace stctl {

void add_generate(CLI::App &app, Session &session) {
  auto what = std::make_shared<std::string>();
  CLI::App *command = app.add_subcommand("generate", "The man page, or a shell's completion");
  command->group("");
  command->add_option("WHAT", *what, "man, bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"man", "bash", "zsh", "fish"}));
  command->callback([&app, &session, what] {
    session.run = [&app, &session, what] {
      session.out.write(*what == "man"    ? manual(app, st_version())
                        : *what == "bash" ? bash_completion(app)
                        : *what == "zsh"  ? zsh_completion(app)
                                          : fish_completion(app));
      return exit_ok;
    };
  });
}

}  // namespace stctl
