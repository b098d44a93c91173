package st_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"libst/st"
)

func TestErrorsAreThoseOfTheStandardLibraryToo(t *testing.T) {
	_, err := st.Open(filepath.Join(t.TempDir(), "none"), nil)
	e := refused(t, err, st.ErrNoFile)
	if !errors.Is(err, fs.ErrNotExist) || !errors.Is(err, syscall.ENOENT) || e.Errno != syscall.ENOENT || e.Op != "open" {
		t.Errorf("a file that is not there: %#v", e)
	}
	if errors.Is(err, st.ErrBusy) || errors.Is(err, fs.ErrPermission) {
		t.Error("the error is everything")
	}
	f, _ := small(t)
	_, err = f.Get("x")
	e = refused(t, err, st.ErrNotFound)
	if errors.Is(err, fs.ErrNotExist) || e.Tensor != "x" || !e.HasTensor || e.Offset != -1 || !strings.Contains(e.Error(), "x") {
		t.Errorf("a tensor that is not there: %#v", e)
	}
	_, err = st.Open(t.TempDir(), nil)
	refused(t, err, st.ErrNotRegular)
	_, err = st.Open("a\x00b", nil)
	refused(t, err, st.ErrInvalidArgument)
	refused(t, st.Verify("a\x00b", nil), st.ErrInvalidArgument)
	_, err = st.Open("x", &st.Options{Map: 9})
	refused(t, err, st.ErrUnsupported)
	_, err = st.ParseDType("f32")
	refused(t, err, st.ErrDType)
	_, err = st.ParseDType("F32\x00")
	refused(t, err, st.ErrDType)
	if !errors.Is(st.ErrLockUnsupported, errors.ErrUnsupported) || st.Status(12345).String() != "ST_E_UNKNOWN" {
		t.Error("statuses do not match")
	}
}

func TestAnErrorIsOneSentence(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none")
	_, err := st.Open(path, nil)
	if want := "libst: cannot open '" + path + "': No such file or directory"; err.Error() != want {
		t.Errorf("%q, not %q", err, want)
	}
}

func TestFilesInMemoryAreReadOnlyAndChecked(t *testing.T) {
	for _, content := range [][]byte{nil, {}, {1, 2, 3}} {
		_, err := st.OpenBytes(content)
		refused(t, err, st.ErrHeaderTooSmall)
	}
	f, err := st.OpenBytes([]byte("\x02\x00\x00\x00\x00\x00\x00\x00{}"))
	must(t, err)
	defer f.Close()
	_, err = f.Begin(nil)
	refused(t, err, st.ErrReadOnly)
}

// Every way in which a file can be wrong, from the tests of the core.
func TestMalformedFilesAreRefusedWithTheirStatus(t *testing.T) {
	script, err := filepath.Abs("../../tests/differential/corpus.py")
	must(t, err)
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3 to make the corpus with")
	}
	folder := t.TempDir()
	table, err := exec.Command(python, script, folder).Output()
	must(t, err)
	cases := 0
	for line := range strings.Lines(string(table)) {
		words := strings.Fields(line)
		if len(words) < 2 || !strings.HasPrefix(words[1], "ST_") {
			continue
		}
		cases++
		path := filepath.Join(folder, words[0]+".safetensors")
		content, err := os.ReadFile(path)
		must(t, err)
		inMemory, errMemory := st.OpenBytes(content)
		f, errFile := st.Open(path, nil)
		for how, err := range map[string]error{"open": errFile, "memory": errMemory, "verify": st.Verify(path, nil)} {
			var e *st.Error
			got := "ST_OK"
			if errors.As(err, &e) {
				got = e.Status.String()
			}
			if got != words[1] {
				t.Errorf("%s, %s: %s (%v), not %s", words[0], how, got, err, words[1])
			}
		}
		if errFile == nil {
			must(t, f.Close())
			must(t, inMemory.Close())
		}
	}
	if cases < 100 {
		t.Errorf("the corpus has only %d files", cases)
	}
}

func TestVerifyTellsItsFindings(t *testing.T) {
	_, path := small(t)
	must(t, st.Verify(path, nil))
	content, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, append(content, 0), 0o644))
	var findings []st.Report
	collect := func(r st.Report) error {
		findings = append(findings, r)
		return nil
	}
	refused(t, st.Verify(path, &st.VerifyOptions{Report: collect}), st.ErrTrailingData)
	last := findings[len(findings)-1]
	if last.Level != st.LogError || last.Status != st.ErrTrailingData || last.Message == "" {
		t.Errorf("the finding is %+v", last)
	}
	must(t, st.Recover(path, &st.RecoverOptions{Report: collect, LockTimeout: st.NoWait}))
	stop := errors.New("enough")
	err = st.Verify(path, &st.VerifyOptions{Report: func(st.Report) error { return stop }})
	if !errors.Is(err, stop) {
		t.Errorf("a report that stops answers %v", err)
	}
}
