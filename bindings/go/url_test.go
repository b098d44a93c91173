package st_test

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"libst/st"
)

// hasRemote tells whether libst-remote.so.2 lies beside the library.
func hasRemote() bool {
	maps, _ := os.ReadFile("/proc/self/maps")
	for _, word := range strings.Fields(string(maps)) {
		if strings.Contains(word, "/libst.so.2") {
			_, err := os.Stat(filepath.Join(filepath.Dir(word), "libst-remote.so.2"))
			return err == nil
		}
	}
	return false
}

func TestAModelThatAURLNames(t *testing.T) {
	content, want := largeModel(t)
	var mutex sync.Mutex
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/model.safetensors" {
			http.NotFound(w, r)
			return
		}
		mutex.Lock()
		asked = append(asked, r.Header.Get("Range"))
		mutex.Unlock()
		w.Header().Set("ETag", `"1"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}))
	defer server.Close()
	f, err := st.Open(server.URL+"/model.safetensors", nil)
	if errors.Is(err, st.ErrUnsupported) && !hasRemote() {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, tensor := range want {
		for what, get := range map[string]func(string) (st.Tensor, error){"Get": f.Get, "View": f.View} {
			got, err := get(name)
			if err != nil || !bytes.Equal(got.Data, tensor.Data) {
				t.Errorf("%s of %s: %v", what, name, err)
			}
		}
	}
	if err := f.Load(nil, nil); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	mutex.Lock()
	defer mutex.Unlock()
	if asked[0] != "bytes=0-262143" || slices.Contains(asked, "") {
		t.Errorf("asked for %q", asked)
	}
	if _, err := st.Open(server.URL+"/none.safetensors", nil); !errors.Is(err, st.ErrNoFile) {
		t.Errorf("an object that is not there: %v", err)
	}
}
