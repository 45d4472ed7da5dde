package image

import (
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Kernel is an unpacked kernel package. The package isn't installed: this machine must not boot
// that kernel itself.
type Kernel struct {
	Image   string
	modules map[string]string // name to path; "": built in
}

// FindKernel unpacks a kernel of Debian's under dir, unless dir has it, and returns it.
func FindKernel(dir, name string) (*Kernel, error) {
	root := filepath.Join(dir, name)
	if err := unpack(root, func() ([]string, error) { return kernelNow(name) }); err != nil {
		return nil, err
	}
	images, err := filepath.Glob(filepath.Join(root, "boot/vmlinuz-*"))
	if err != nil || len(images) != 1 {
		return nil, fmt.Errorf("%s holds %d kernels, not one: remove it", root, len(images))
	}
	k := &Kernel{Image: images[0], modules: map[string]string{}}
	err = filepath.WalkDir(filepath.Join(root, "lib/modules"), func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".ko") {
			k.modules[moduleName(path)] = path
		}
		if filepath.Base(path) == "modules.builtin" && err == nil {
			return k.addBuiltin(path)
		}
		return err
	})
	return k, err
}

// addBuiltin reads which modules are part of the kernel itself.
func (k *Kernel) addBuiltin(list string) error {
	text, err := os.ReadFile(list)
	for line := range strings.Lines(string(text)) {
		k.modules[moduleName(strings.TrimSpace(line))] = ""
	}
	return err
}

// moduleName returns the name by which other modules depend on the module in a file.
func moduleName(path string) string {
	return strings.ReplaceAll(strings.TrimSuffix(filepath.Base(path), ".ko"), "-", "_")
}

// kernelNow returns the kernel package that a metapackage depends on at present.
func kernelNow(metapackage string) ([]string, error) {
	out, err := exec.Command("apt-cache", "depends", metapackage).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("apt-cache: %w: %s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: ")
		if ok && strings.HasPrefix(name, "linux-image-") {
			return []string{name}, nil
		}
	}
	return nil, fmt.Errorf("apt knows of no %s", metapackage)
}

// InOrder returns the files of modules and of their dependencies, each behind its own dependencies.
func (k *Kernel) InOrder(names ...string) (paths []string, err error) {
	seen := map[string]bool{}
	var add func(name string) error
	add = func(name string) error {
		name = moduleName(name)
		if seen[name] {
			return nil
		}
		seen[name] = true
		path, ok := k.modules[name]
		if !ok {
			return fmt.Errorf("kernel %s has no module %s", filepath.Base(k.Image), name)
		}
		if path == "" {
			return nil
		}
		needs, err := dependsOf(path)
		if err != nil {
			return err
		}
		for _, n := range needs {
			if err := add(n); err != nil {
				return err
			}
		}
		paths = append(paths, path)
		return nil
	}
	for _, n := range names {
		if err := add(n); err != nil {
			return nil, err
		}
	}
	return paths, nil
}

// dependsOf returns the dependencies in a module's own metadata.
func dependsOf(path string) ([]string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer f.Close()
	section := f.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("%s: no module", path)
	}
	data, err := section.Data()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, s := range strings.Split(string(data), "\x00") {
		if list, ok := strings.CutPrefix(s, "depends="); ok && list != "" {
			return strings.Split(list, ","), nil
		}
	}
	return nil, nil
}
