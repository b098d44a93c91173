package st_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"libst/st"
)

// What the binding does not call, and why. Whatever st.h gains is to be called, or to be explained here.
var notCalled = map[string]string{
	"st_at":                   "st_at_many",
	"st_last_error":           "st_last_error_info gives the same sentence and its parts",
	"st_get":                  "st_get_n: names may hold NUL",
	"st_get_at":               "a tensor is looked up by name; All gives the names",
	"st_read":                 "st_read_n",
	"st_read_slice":           "st_read_slice_n",
	"st_metadata_get":         "st_metadata_get_n",
	"st_prefetch":             "st_prefetch_at: names may hold NUL",
	"st_update":               "st_update_n",
	"st_txn_update":           "st_txn_update_n",
	"st_txn_put":              "st_txn_put_n",
	"st_txn_delete":           "st_txn_delete_n",
	"st_txn_rename":           "st_txn_rename_n",
	"st_txn_set_metadata":     "st_txn_set_metadata_n",
	"st_writer_add":           "st_writer_add_n",
	"st_reopen_copy_on_write": "of a file that is written; Go's views are read-only, and MapCopyOnWrite opens one",
	"st_verify":               "st_verify_with takes a context's progress, too",
	"st_recover":              "st_recover_with",
}

// How the parts of a C name are spelled in Go, where that is not one capital and small letters.
var spelled = map[string]string{
	"IO": "IO", "UTF8": "UTF8", "JSON": "JSON", "NOMEM": "NoMem", "NBYTES": "NBytes", "DTYPE": "DType", "SUBBYTE": "SubByte",
	"FUSE": "FUSE",
}

func goName(c string) string {
	var name strings.Builder
	for part := range strings.SplitSeq(strings.ToUpper(c), "_") {
		if s, ok := spelled[part]; ok {
			name.WriteString(s)
		} else if part != "" {
			name.WriteString(part[:1] + strings.ToLower(part[1:]))
		}
	}
	return name.String()
}

// header is the st.h that the package is compiled with, without comments.
func header(t *testing.T) string {
	t.Helper()
	dir, err := exec.Command("pkg-config", "--variable=includedir", "libst").Output()
	must(t, err)
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "st", "st.h"))
	must(t, err)
	return regexp.MustCompile(`(?s)/\*.*?\*/`).ReplaceAllString(string(text), "")
}

// sources are what is compiled of this package: all but the tests.
func sources(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"*.go", "*.c"} {
		paths, err := filepath.Glob(pattern)
		must(t, err)
		for _, path := range paths {
			if !strings.HasSuffix(path, "_test.go") {
				text, err := os.ReadFile(path)
				must(t, err)
				all[path] = string(text)
			}
		}
	}
	return all
}

func exported(header string) []string {
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^(?:[a-z][\w ]*[ *])(st_\w+)\(`).FindAllStringSubmatch(header, -1) {
		names = append(names, m[1])
	}
	return names
}

func TestEveryFunctionOfTheHeaderIsCalledOrExplained(t *testing.T) {
	functions := exported(header(t))
	if len(functions) < 40 {
		t.Fatalf("only %d functions were found in st.h", len(functions))
	}
	called := map[string]bool{}
	for path, text := range sources(t) {
		prefix := `C\.`
		if filepath.Ext(path) == ".c" {
			prefix = `[=(!&| ]`
		}
		for _, m := range regexp.MustCompile(prefix+`(st_\w+)\(`).FindAllStringSubmatch(text, -1) {
			called[m[1]] = true
		}
	}
	there := map[string]bool{}
	for _, name := range functions {
		there[name] = true
		why, explained := notCalled[name]
		switch {
		case called[name] && explained:
			t.Errorf("%s is called, but the table says that it is not: %s", name, why)
		case !called[name] && !explained:
			t.Errorf("%s is not called by the binding, and the table does not say why", name)
		}
	}
	for name := range notCalled {
		if !there[name] {
			t.Errorf("the table explains %s, which st.h does not have", name)
		}
	}
}

// defined are the constants of the header that begin so: name without prefix, value.
func defined(header, prefix string) map[string]uint64 {
	all := map[string]uint64{}
	for _, m := range regexp.MustCompile(`(?m)^#define `+prefix+`(\w+) +(\d+)u?\b`).FindAllStringSubmatch(header, -1) {
		all[m[1]], _ = strconv.ParseUint(m[2], 10, 64)
	}
	return all
}

// constants are those of one type in the package's sources.
func constants(t *testing.T, ofType string) map[string]uint64 {
	t.Helper()
	all := map[string]uint64{}
	for path, text := range sources(t) {
		if filepath.Ext(path) != ".go" {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, 0)
		must(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			if id, ok := spec.Type.(*ast.Ident); !ok || id.Name != ofType {
				return true
			}
			if value, ok := spec.Values[0].(*ast.BasicLit); ok {
				all[spec.Names[0].Name], _ = strconv.ParseUint(value.Value, 0, 64)
			}
			return true
		})
	}
	return all
}

func sameConstants(t *testing.T, kind string, c map[string]uint64, toGo func(string) string, goType string) {
	t.Helper()
	if len(c) == 0 {
		t.Fatalf("no %s was found in st.h", kind)
	}
	have := constants(t, goType)
	for name, value := range c {
		spelling := toGo(name)
		if got, ok := have[spelling]; !ok {
			t.Errorf("%s %s = %d has no constant %s", kind, name, value, spelling)
		} else if got != value {
			t.Errorf("%s is %d, but %d in st.h", spelling, got, value)
		}
		delete(have, spelling)
	}
	for name := range have {
		t.Errorf("%s is not in st.h", name)
	}
}

func TestConstantsAreThoseOfTheHeader(t *testing.T) {
	h := header(t)
	sameConstants(t, "status", defined(h, "ST_E_"), func(c string) string { return "Err" + goName(c) }, "Status")
	sameConstants(t, "dtype", defined(h, "ST_DTYPE_"), func(c string) string {
		if c == "BOOL" {
			return "Bool"
		}
		return strings.ReplaceAll(c, "_", "")
	}, "DType")
	sameConstants(t, "mapping", defined(h, "ST_MAP_"), func(c string) string { return "Map" + goName(c) }, "MapMode")
	sameConstants(t, "storage", defined(h, "ST_STORAGE_"), func(c string) string { return "Storage" + goName(c) }, "Storage")
	sameConstants(t, "prefetch", defined(h, "ST_PREFETCH_"), func(c string) string { return "Prefetch" + goName(c) }, "Prefetch")
	sameConstants(t, "direct", defined(h, "ST_DIRECT_"), func(c string) string { return "Direct" + goName(c) }, "Direct")
	sameConstants(t, "layout", defined(h, "ST_LAYOUT_"), func(c string) string { return "Layout" + goName(c) }, "Layout")
	sameConstants(t, "plan", defined(h, "ST_PLAN_"), func(c string) string { return "Plan" + goName(c) }, "PlanKind")
	levels := defined(h, "ST_LOG_")
	for name, value := range defined(h, "ST_REPORT_") {
		levels["REPORT_"+name] = value
	}
	sameConstants(t, "level", levels, func(c string) string {
		if strings.HasPrefix(c, "REPORT_") {
			return goName(c)
		}
		return "Log" + goName(c)
	}, "LogLevel")
}

func TestNamesOfStatusesAndDTypesAreTheLibrarys(t *testing.T) {
	for name, value := range defined(header(t), "ST_E_") {
		if got := st.Status(value).String(); got != "ST_E_"+name {
			t.Errorf("status %d is called %s, not ST_E_%s", value, got, name)
		}
	}
	for name, value := range defined(header(t), "ST_DTYPE_") {
		d := st.DType(value)
		if parsed, err := st.ParseDType(name); err != nil || parsed != d || d.String() != name {
			t.Errorf("dtype %s parses to %v (%v)", name, parsed, err)
		}
	}
}

// fields of a struct of the header.
func fields(t *testing.T, header, structure string) []string {
	t.Helper()
	body := regexp.MustCompile(`(?s)typedef struct ` + structure + ` \{(.*?)\}`).FindStringSubmatch(header)
	if body == nil {
		t.Fatalf("st.h has no struct %s", structure)
	}
	var names []string
	for declaration := range strings.SplitSeq(body[1], ";") {
		_, list, _ := strings.Cut(strings.TrimSpace(declaration), " ")
		for one := range strings.SplitSeq(list, ",") {
			if m := regexp.MustCompile(`(\w+)(\[\w+\])?$`).FindStringSubmatch(strings.TrimSpace(one)); m != nil {
				names = append(names, m[1])
			}
		}
	}
	return names
}

// Every field of what the library tells must reach Go, and every option must be given a way to be set.
func TestStructsHaveTheFieldsOfTheHeader(t *testing.T) {
	h := header(t)
	results := map[string]struct {
		of      reflect.Type
		renamed map[string]string // "": not shown
	}{
		"st_stats":   {reflect.TypeFor[st.Stats](), nil},
		"st_io_info": {reflect.TypeFor[st.IOInfo](), nil},
		"st_tensor": {reflect.TypeFor[st.Info](), map[string]string{
			"name_len": "", "rank": "", "data": "", "nbytes": "Size", "file_offset": "Offset"}},
		"st_error_info": {reflect.TypeFor[st.Error](), map[string]string{
			"os_errno": "Errno", "tensor_len": "", "holder_pid": "HolderPID"}},
		"st_report":     {reflect.TypeFor[st.Report](), nil},
		"st_plan":       {reflect.TypeFor[st.Plan](), nil},
		"st_range":      {reflect.TypeFor[st.Range](), nil},
		"st_delta_info": {reflect.TypeFor[st.DeltaInfo](), nil},
		"st_read_request": {reflect.TypeFor[st.ReadRequest](), map[string]string{
			"name_len": "", "index": "", "dst_size": "", "range_count": ""}},
	}
	for structure, result := range results {
		for _, field := range fields(t, h, structure) {
			if field == "struct_size" || strings.HasPrefix(field, "reserved") {
				continue
			}
			name, ok := result.renamed[field]
			if !ok {
				name = goName(field)
			}
			if _, there := result.of.FieldByName(name); name != "" && !there {
				t.Errorf("%s.%s has no field %s in %v", structure, field, name, result.of)
			}
		}
	}
	var all strings.Builder
	for _, text := range sources(t) {
		all.WriteString(text)
	}
	for _, structure := range []string{"st_open_options", "st_txn_options", "st_verify_options", "st_recover_options", "st_load_options",
		"st_save_options", "st_diff_options", "st_patch_options"} {
		for _, field := range fields(t, h, structure) {
			if structure == "st_load_options" && field == "progress" {
				continue // NULL is the file's, which finds whoever calls
			}
			if structure == "st_save_options" && field == "flags" {
				continue // there are none yet
			}
			if field == "struct_size" || strings.HasPrefix(field, "reserved") || field == "user" || strings.HasSuffix(field, "_user") {
				continue // callbacks find their call by the thread
			}
			set := regexp.MustCompile(`(c\.c\._?|config\.c\.|options->)` + field + ` (\|)?= `)
			if !set.MatchString(all.String()) {
				t.Errorf("nothing sets %s.%s", structure, field)
			}
		}
	}
}

func TestFlagsOfTheHeaderAreUsed(t *testing.T) {
	var all strings.Builder
	for _, text := range sources(t) {
		all.WriteString(text)
	}
	for _, m := range regexp.MustCompile(`(?m)^#define (ST_(?:OPEN|TXN|COMMIT|LOAD)_\w+) \d+u`).FindAllStringSubmatch(header(t), -1) {
		if !strings.Contains(all.String(), "C."+m[1]) {
			t.Errorf("the flag %s cannot be given", m[1])
		}
	}
}

// A constant of a kind that this test does not know is one that the binding does not have.
func TestKindsOfConstantsAreKnown(t *testing.T) {
	known := regexp.MustCompile(`^ST_(ST_H|OK|VERSION_\w+|\w+_INIT|RANGE_ALL|NUL_TERMINATED|TIMEOUT_FOREVER|` +
		`(E|DTYPE|MAP|PREFETCH|DIRECT|STORAGE|LOG|REPORT|OPEN|TXN|COMMIT|LOAD|LAYOUT|PLAN)_\w+)$`)
	for _, m := range regexp.MustCompile(`(?m)^#define (\w+)`).FindAllStringSubmatch(header(t), -1) {
		if !known.MatchString(m[1]) {
			t.Errorf("%s is a constant of a new kind", m[1])
		}
	}
}
