package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
)

// read returns the files of a tar archive, and the modes of all entries.
func read(t *testing.T, r io.Reader) (files map[string][]byte, modes map[string]int64) {
	t.Helper()
	files, modes = map[string][]byte{}, map[string]int64{}
	for a := tar.NewReader(r); ; {
		h, err := a.Next()
		if errors.Is(err, io.EOF) {
			return files, modes
		}
		if err != nil {
			t.Fatal(err)
		}
		if modes[h.Name] = h.Mode; h.Typeflag == tar.TypeReg {
			if files[h.Name], err = io.ReadAll(a); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// The archive has each blob by its digest; the layer has the files, below directories of their own.
func TestWrite(t *testing.T) {
	i := Image{Name: "example.com:5000/pegasus:1", Files: []File{{"/usr/bin/b", 0o755, []byte("b")}, {"/etc/a", 0o644, nil}}}
	var out bytes.Buffer
	manifest, err := i.Write(&out)
	if err != nil {
		t.Fatal(err)
	}
	files, _ := read(t, bytes.NewReader(out.Bytes()))
	for name, data := range files {
		if sum, ok := strings.CutPrefix(name, "blobs/sha256/"); ok && digest(data) != "sha256:"+sum {
			t.Errorf("%s: has the digest %s", name, digest(data))
		}
	}
	blob := func(d descriptor) []byte {
		t.Helper()
		data, ok := files[place(d)[1:]]
		if !ok || len(data) != d.Size {
			t.Fatalf("%v: %d bytes, %v", d, len(data), ok)
		}
		return data
	}
	decode := func(data []byte, v any) {
		t.Helper()
		if err := json.Unmarshal(data, v); err != nil {
			t.Fatalf("%v: %s", err, data)
		}
	}
	var index struct{ Manifests []descriptor }
	decode(files["index.json"], &index)
	if len(index.Manifests) != 1 || index.Manifests[0].Digest != manifest || index.Manifests[0].Annotations["io.containerd.image.name"] != i.Name {
		t.Fatalf("index: %s", files["index.json"])
	}
	var m struct {
		Config descriptor
		Layers []descriptor
	}
	decode(blob(index.Manifests[0]), &m)
	z, err := gzip.NewReader(bytes.NewReader(blob(m.Layers[0])))
	if err != nil {
		t.Fatal(err)
	}
	layer, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Rootfs struct {
			IDs []string `json:"diff_ids"`
		}
	}
	decode(blob(m.Config), &config)
	if !slices.Equal(config.Rootfs.IDs, []string{digest(layer)}) {
		t.Errorf("diff_ids: %v, want %s", config.Rootfs.IDs, digest(layer))
	}
	_, modes := read(t, bytes.NewReader(layer))
	if want := map[string]int64{"etc/": 0o755, "etc/a": 0o644, "usr/": 0o755, "usr/bin/": 0o755, "usr/bin/b": 0o755}; !maps.Equal(modes, want) {
		t.Errorf("layer: %v, want %v", modes, want)
	}
	var docker []struct {
		Config, Layers any
		RepoTags       []string
	}
	decode(files["manifest.json"], &docker)
	if len(docker) != 1 || docker[0].Config != place(m.Config)[1:] || !slices.Equal(docker[0].RepoTags, []string{i.Name}) {
		t.Errorf("manifest.json: %s", files["manifest.json"])
	}
	var again bytes.Buffer
	if _, err := i.Write(&again); err != nil || !bytes.Equal(again.Bytes(), out.Bytes()) {
		t.Errorf("the second archive differs: %v", err)
	}
	for _, name := range []string{"", "pegasus", "example.com:5000/pegasus", "pegasus:"} {
		if _, err := (Image{Name: name}).Write(io.Discard); err == nil || !strings.Contains(err.Error(), "with a tag") {
			t.Errorf("name %q: %v", name, err)
		}
	}
}
