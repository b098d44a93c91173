// stctl generate: the man page and the shells' completions, from the options that all
// other commands declare. For the build, so it is not in --help.
#include <memory>

#include "../commands.h"
#include "../completion.h"
#include "../exit_code.h"
#include "../manual.h"

namespace stctl {

void add_generate(CommandLine &line, Session &session) {
  auto what = std::make_shared<std::string>();
  const Command command = line.hidden_command("generate", "The man page, or a shell's completion");
  command.argument("WHAT", *what, "man, bash, zsh or fish").required().one_of({"man", "bash", "zsh", "fish"});
  command.runs(session, [&line, &session, what] {
    const CommandText all = line.text();
    session.out.write(*what == "man"    ? manual(all, st_version())
                      : *what == "bash" ? bash_completion(all)
                      : *what == "zsh"  ? zsh_completion(all)
                                        : fish_completion(all));
    return exit_ok;
  });
}

}  // namespace stctl
