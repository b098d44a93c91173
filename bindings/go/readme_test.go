package st_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"libst/st"
)

// The section "In Go" of the README is the text of examples/readme, which does what it says.
func TestTheTextOfTheReadmeRuns(t *testing.T) {
	example, err := os.ReadFile("examples/readme/main.go")
	must(t, err)
	readme, err := os.ReadFile("../../README.md")
	must(t, err)
	_, section, found := strings.Cut(string(readme), "\n## In Go\n")
	_, section, _ = strings.Cut(section, "```go\n")
	if code, _, _ := strings.Cut(section, "```"); !found || code != string(example) {
		t.Error("the README and examples/readme/main.go differ")
	}

	weight := st.TensorOf([]float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 5, 2)
	path := newFile(t, []named{{"lm_head.weight", weight}}, nil)
	program := filepath.Join(t.TempDir(), "readme")
	if output, err := exec.Command("go", "build", "-o", program, "./examples/readme").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	command := exec.Command(program)
	command.Dir = filepath.Dir(path)
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	holds(t, path, map[string]st.Tensor{
		"output.weight": weight, "head": st.TensorOf([]float32{1, 2, 3, 4, 5, 6, 7, 8}, 4, 2),
	}, nil)
}
