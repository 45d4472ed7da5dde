// Package image writes container images as archives, without a container daemon: an image layout of the Open Container
// Initiative, with the index that docker reads beside it. Equal files give equal bytes.
//
// Callers: pegasus-image.
//
// Trust boundary: none; it reads the files that its caller names.
package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"
)

// File is a file of the image, which root owns.
type File struct {
	Path string // in the image, absolute
	Mode int64
	Data []byte
}

// Image is an image of one layer for Linux on x86-64.
type Image struct {
	Name    string   // with a tag, such as example.com/pegasus:1
	Command []string // of containers that have no command of their own
	Files   []File
}

// epoch is the time of all files, so that an image depends on its contents alone.
var epoch = time.Unix(0, 0).UTC()

// descriptor refers to a blob.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

const (
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar+gzip"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	indexType    = "application/vnd.oci.image.index.v1+json"
)

// blobs are the blobs of an archive, in their order.
type blobs []File

func (b *blobs) add(kind string, data []byte) descriptor {
	d := descriptor{MediaType: kind, Digest: digest(data), Size: len(data)}
	*b = append(*b, File{Path: place(d), Mode: 0o644, Data: data})
	return d
}

func (b *blobs) addJSON(kind string, v any) (descriptor, error) {
	text, err := json.Marshal(v)
	return b.add(kind, text), err
}

func digest(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

func place(d descriptor) string { return "/blobs/sha256/" + strings.TrimPrefix(d.Digest, "sha256:") }

// Write writes the archive, and returns the digest by which a registry has the image.
func (i Image) Write(w io.Writer) (manifest string, err error) {
	if _, tag, ok := strings.Cut(path.Base(i.Name), ":"); !ok || tag == "" {
		return "", fmt.Errorf("image %q: must be a name with a tag, such as example.com/pegasus:1", i.Name)
	}
	layer, err := archive(i.Files)
	if err != nil {
		return "", err
	}
	packed, err := pack(layer)
	if err != nil {
		return "", err
	}
	var all blobs
	defaults := map[string]any{"Env": []string{"PATH=/usr/bin:/bin"}}
	if len(i.Command) > 0 {
		defaults["Cmd"] = i.Command
	}
	config, err := all.addJSON(configType, map[string]any{
		"architecture": "amd64", "os": "linux", "created": epoch,
		"config": defaults,
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(layer)}},
	})
	if err != nil {
		return "", err
	}
	content := all.add(layerType, packed)
	m, err := all.addJSON(manifestType, map[string]any{"schemaVersion": 2, "mediaType": manifestType, "config": config, "layers": []descriptor{content}})
	if err != nil {
		return "", err
	}
	m.Annotations = map[string]string{"org.opencontainers.image.ref.name": i.Name, "io.containerd.image.name": i.Name}
	for name, v := range map[string]any{
		"/oci-layout":    map[string]string{"imageLayoutVersion": "1.0.0"},
		"/index.json":    map[string]any{"schemaVersion": 2, "mediaType": indexType, "manifests": []descriptor{m}},
		"/manifest.json": []map[string]any{{"Config": place(config)[1:], "RepoTags": []string{i.Name}, "Layers": []string{place(content)[1:]}}},
	} {
		text, err := json.Marshal(v)
		if err != nil {
			return "", err
		}
		all = append(all, File{Path: name, Mode: 0o644, Data: text})
	}
	out, err := archive(all)
	if err == nil {
		_, err = w.Write(out)
	}
	return m.Digest, err
}

// archive returns the files and their directories as a tar archive, sorted.
func archive(files []File) ([]byte, error) {
	files = slices.SortedFunc(slices.Values(files), func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	made := map[string]bool{"/": true}
	for _, f := range files {
		if err := directories(w, path.Dir(f.Path), made); err != nil {
			return nil, err
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.Path[1:], Mode: f.Mode, Size: int64(len(f.Data)), ModTime: epoch, Format: tar.FormatPAX}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.Data); err != nil {
			return nil, err
		}
	}
	err := w.Close() // writes the end
	return b.Bytes(), err
}

func directories(w *tar.Writer, dir string, made map[string]bool) error {
	if made[dir] {
		return nil
	}
	if err := directories(w, path.Dir(dir), made); err != nil {
		return err
	}
	made[dir] = true
	return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir[1:] + "/", Mode: 0o755, ModTime: epoch, Format: tar.FormatPAX})
}

func pack(layer []byte) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(layer); err != nil {
		return nil, err
	}
	err = z.Close() // writes the end
	return b.Bytes(), err
}
