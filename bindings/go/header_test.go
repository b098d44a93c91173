package st_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
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
	"st_last_error": "st_last_error_info gives the same sentence and its parts",
	"st_get_at":     "a tensor is looked up by name; All gives the names",

	"st_shard_io_info": "IOInfo is of the first shard, and nobody has asked for another's",

	"st_mapping_keep": "a view lives until Close or Release; what is kept longer is copied by Get",
	"st_mapping_free": "there is none to free",
}

// What st.h declares: functions, macros that stand for a number, and the fields of structs.
var headerFunctions, headerConstants, headerStructs = readHeader("../../capi/include/st/st.h")

func readHeader(path string) (functions []string, constants map[string]int64, structs map[string][]string) {
	text, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	code := regexp.MustCompile(`(?s)/\*.*?\*/`).ReplaceAllString(string(text), "")
	for _, m := range regexp.MustCompile(`(?m)^\w.*\b(st_\w+)\(`).FindAllStringSubmatch(code, -1) {
		functions = append(functions, m[1])
	}
	constants, structs = map[string]int64{}, map[string][]string{}
	number := regexp.MustCompile(`(?m)^#define (ST_\w+) \(?(?:\(size_t\))?(-?(?:0x[0-9a-f]+|\d+))u?\)?\s*$`)
	for _, m := range number.FindAllStringSubmatch(code, -1) {
		if constants[m[1]], err = strconv.ParseInt(m[2], 0, 64); err != nil {
			panic(err)
		}
	}
	field := regexp.MustCompile(`(\w+)(?:\[\d+\])?[,;]`)
	for _, m := range regexp.MustCompile(`(?s)typedef struct (st_\w+) \{(.*?)\n\}`).FindAllStringSubmatch(code, -1) {
		for _, f := range field.FindAllStringSubmatch(m[2], -1) {
			structs[m[1]] = append(structs[m[1]], f[1])
		}
	}
	return functions, constants, structs
}

// How the parts of a C name are spelled in Go, where that is not one capital and small letters.
var spelled = map[string]string{"IO": "IO", "NBYTES": "NBytes", "DTYPE": "DType", "FUSE": "FUSE"}

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

func TestEveryFunctionOfTheHeaderIsCalledOrExplained(t *testing.T) {
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
	for _, name := range headerFunctions {
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
func defined(prefix string) map[string]int64 {
	all := map[string]int64{}
	for name, value := range headerConstants {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			all[rest] = value
		}
	}
	return all
}

// constants are those of one type in the package's sources.
func constants(t *testing.T, ofType string) map[string]int64 {
	t.Helper()
	all := map[string]int64{}
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
				all[spec.Names[0].Name], _ = strconv.ParseInt(value.Value, 0, 64)
			}
			return true
		})
	}
	return all
}

func sameConstants(t *testing.T, kind string, c map[string]int64, toGo func(string) string, goType string) {
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
	sameConstants(t, "mapping", defined("ST_MAP_"), func(c string) string { return "Map" + goName(c) }, "MapMode")
	sameConstants(t, "storage", defined("ST_STORAGE_"), func(c string) string { return "Storage" + goName(c) }, "Storage")
	sameConstants(t, "prefetch", defined("ST_PREFETCH_"), func(c string) string { return "Prefetch" + goName(c) }, "Prefetch")
	sameConstants(t, "direct", defined("ST_DIRECT_"), func(c string) string { return "Direct" + goName(c) }, "Direct")
	sameConstants(t, "layout", defined("ST_LAYOUT_"), func(c string) string { return "Layout" + goName(c) }, "Layout")
	sameConstants(t, "plan", defined("ST_PLAN_"), func(c string) string { return "Plan" + goName(c) }, "PlanKind")
	sameConstants(t, "action", defined("ST_ACTION_"), func(c string) string { return "Action" + goName(c) }, "Action")
	sameConstants(t, "level", defined("ST_LOG_"), func(c string) string { return "Log" + goName(c) }, "LogLevel")
}

func TestNamesOfStatusesAndDTypesAreTheLibrarys(t *testing.T) {
	for name, value := range defined("ST_E_") {
		if got := st.Status(value).String(); got != "ST_E_"+name {
			t.Errorf("status %d is called %s, not ST_E_%s", value, got, name)
		}
	}
	for name, value := range defined("ST_DTYPE_") {
		d := st.DType(value)
		if parsed, err := st.ParseDType(name); err != nil || parsed != d || d.String() != name {
			t.Errorf("dtype %s parses to %v (%v)", name, parsed, err)
		}
		var back st.DType
		if text, err := json.Marshal(d); string(text) != `"`+name+`"` || err != nil {
			t.Errorf("dtype %s is %s as JSON (%v)", name, text, err)
		} else if err := json.Unmarshal(text, &back); err != nil || back != d {
			t.Errorf("dtype %s comes back as %v (%v)", name, back, err)
		}
	}
	var d st.DType
	refused(t, json.Unmarshal([]byte(`"f32"`), &d), st.ErrDType)
	if _, err := json.Marshal(st.DType(99)); !errors.Is(err, st.ErrDType) {
		t.Errorf("no dtype is %v as JSON", err)
	}
	for name, value := range defined("ST_ACTION_") {
		if got := st.Action(value).String(); got != strings.ToLower(name) {
			t.Errorf("action %s is called %s", name, got)
		}
	}
}

// fields of a struct of the header.
func fields(t *testing.T, structure string) []string {
	t.Helper()
	names, ok := headerStructs[structure]
	if !ok {
		t.Fatalf("st.h has no struct %s", structure)
	}
	return names
}

// Every field of what the library tells must reach Go, and every option must be given a way to be set.
func TestStructsHaveTheFieldsOfTheHeader(t *testing.T) {
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
		for _, field := range fields(t, structure) {
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
	var text strings.Builder
	for _, source := range sources(t) {
		text.WriteString(source)
	}
	for _, structure := range []string{"st_open_options", "st_txn_options", "st_verify_options", "st_recover_options", "st_bulk_options",
		"st_save_options", "st_delta_create_options", "st_delta_apply_options"} {
		literal := regexp.MustCompile(`(?s)C\.` + structure + `\{(.*?)\n\t\}`).FindString(text.String())
		for _, field := range fields(t, structure) {
			if structure == "st_save_options" && field == "flags" {
				continue // there are none yet
			}
			if strings.HasPrefix(field, "reserved") || strings.HasSuffix(field, "_user") {
				continue // callbacks find their call by the thread
			}
			inLiteral := regexp.MustCompile(`\b_?` + field + `: `)
			later := regexp.MustCompile(`\.` + field + `(, \w+\.\w+)? = `) // what lies in C's memory for a call
			if !inLiteral.MatchString(literal) && !later.MatchString(text.String()) {
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
	flag := regexp.MustCompile(`^ST_(OPEN|REOPEN|TXN|BULK)_`)
	for name := range headerConstants {
		if flag.MatchString(name) && !strings.Contains(all.String(), "C."+name) {
			t.Errorf("the flag %s cannot be given", name)
		}
	}
}

// A constant of a kind that this test does not know is one that the binding does not have.
func TestKindsOfConstantsAreKnown(t *testing.T) {
	known := regexp.MustCompile(`^ST_(OK|NTS|VERSION_\w+|` +
		`(E|ACTION|DTYPE|MAP|PREFETCH|DIRECT|STORAGE|LOG|OPEN|REOPEN|TXN|BULK|LAYOUT|PLAN|TIMEOUT|GRACE)_\w+)$`)
	for name := range headerConstants {
		if !known.MatchString(name) {
			t.Errorf("%s is a constant of a new kind", name)
		}
	}
}
