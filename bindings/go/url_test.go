package st_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
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

// openURL opens a model that a server has; without libst-remote.so.2 it skips the test.
func openURL(t *testing.T, url string) *st.File {
	t.Helper()
	f, err := st.Open(url, nil)
	if errors.Is(err, st.ErrUnsupported) && !hasRemote() {
		t.Skip(err)
	}
	must(t, err)
	return f
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
	f := openURL(t, server.URL+"/model.safetensors?token=secret")
	if text := fmt.Sprint(f); text != "http://..." {
		t.Errorf("it prints as %s", text)
	}
	for name, tensor := range want {
		for what, get := range map[string]func(string) (st.Tensor, error){"Get": f.Get, "View": f.View} {
			got, err := get(name)
			if err != nil || !bytes.Equal(got.Data, tensor.Data) {
				t.Errorf("%s of %s: %v", what, name, err)
			}
		}
	}
	must(t, f.Load(nil, nil))
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

// Shards wait for each other: one that is opened alone is not answered.
func TestShardsOfTensorsThatAreNamedAreOpenedSideBySide(t *testing.T) {
	for what, call := range map[string]func(*st.File, []string) error{
		"Load":     func(f *st.File, names []string) error { return f.Load(names, nil) },
		"Prefetch": func(f *st.File, names []string) error { return f.Prefetch(names, nil) },
		"ReadMany": func(f *st.File, names []string) error {
			requests := make([]st.ReadRequest, len(names))
			for i, name := range names {
				requests[i] = st.ReadRequest{Name: name, Dst: make([]byte, 1)}
			}
			return f.ReadMany(requests, nil)
		},
	} {
		t.Run(what, func(t *testing.T) {
			var mutex sync.Mutex
			asked, all := map[string]bool{}, make(chan struct{})
			letGo := sync.OnceFunc(func() { close(all) })
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				content := `{"metadata": {}, "weight_map": {"t0": "m-0", "t1": "m-1", "t2": "m-2", "t3": "m-3"}}`
				if number, isShard := strings.CutPrefix(r.URL.Path, "/m-"); isShard {
					header := `{"t` + number + `": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}`
					content = string(binary.LittleEndian.AppendUint64(nil, uint64(len(header)))) + header + number
					mutex.Lock()
					if asked[number] = true; len(asked) == 3 {
						letGo()
					}
					mutex.Unlock()
					select {
					case <-all:
					case <-time.After(30 * time.Second):
						t.Error("a shard is opened after another one")
						letGo()
					}
				}
				w.Header().Set("ETag", `"1"`)
				http.ServeContent(w, r, "", time.Time{}, strings.NewReader(content))
			}))
			defer server.Close()
			f := openURL(t, server.URL+"/model.safetensors.index.json")
			defer f.Close()
			must(t, call(f, []string{"t3", "t1", "t2"}))
			mutex.Lock()
			defer mutex.Unlock()
			if asked["0"] {
				t.Error("a shard was opened that has none of the tensors")
			}
		})
	}
}
