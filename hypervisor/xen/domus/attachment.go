package domus

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/hypervisor"
	"pegasus/vcpu"
)

// Attachment makes the daemon serve the domU of a name, now and whenever there is one.
type Attachment struct {
	Name    string       `json:"-"`
	Credits vcpu.Credits `json:"credits,omitempty"` // of the accelerator; 0: as configured
	Memory  uint64       `json:"memory"`            // maximum number of bytes that it shares with the daemon
}

// The default and the limits of a domU's shared memory.
const (
	DefaultMemory = 64 << 20
	minMemory     = 8 << 20
	maxMemory     = 16 << 30
	memoryUnit    = 4096
)

// CheckMemory returns an error for an invalid size of shared memory.
func CheckMemory(bytes uint64) error {
	if bytes < minMemory || bytes > maxMemory || bytes%memoryUnit != 0 {
		return fmt.Errorf("want a multiple of 4 KiB, from %d MiB to %d GiB", minMemory>>20, maxMemory>>30)
	}
	return nil
}

// Parse decodes the attachment file of a name.
func Parse(name string, text []byte) (Attachment, error) {
	a := Attachment{Name: name}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&a); err != nil {
		return a, err
	}
	if _, err := d.Token(); err != io.EOF {
		return a, errors.New("there is more than one value in it")
	}
	if err := CheckMemory(a.Memory); err != nil {
		return a, fmt.Errorf("memory = %d: %w", a.Memory, err)
	}
	return a, nil
}

// Text returns the content of the attachment's file.
func (a Attachment) Text() []byte {
	text, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		panic(err) // marshalling numbers can't fail
	}
	return append(text, '\n')
}

// Files are the attachments in a directory, a file for each name.
type Files struct {
	Dir string
	// Valid returns an error for an invalid domain name.
	Valid func(name string) error
	// Patience bounds the wait for another attaching process; 0: lockTime.
	Patience time.Duration
}

// unfinished is the suffix of a file that is being written. No domain's name begins with a dot.
const unfinished = ".new"

// maxFile is above the size of every attachment's file.
const maxFile = 4096

// Path returns the path of a name's file.
func (f Files) Path(name string) string { return filepath.Join(f.Dir, name) }

// Read returns the attachment of a name; fs.ErrNotExist if there is none.
func (f Files) Read(name string) (Attachment, error) {
	file, err := os.OpenFile(f.Path(name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return Attachment{}, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFile))
	if err != nil {
		return Attachment{}, err
	}
	a, err := Parse(name, text)
	if err != nil {
		return a, fmt.Errorf("%s: %w", f.Path(name), err)
	}
	return a, nil
}

// Write attaches a name. The file is replaced atomically. Nothing is written where the daemon would ignore it.
func (f Files) Write(a Attachment) error {
	if err := os.MkdirAll(f.Dir, 0o755); err != nil {
		return err
	}
	if err := f.private(); err != nil {
		return err
	}
	unlock, err := f.lock() // another attaching process uses the same temporary file
	if err != nil {
		return err
	}
	defer unlock()
	making := filepath.Join(f.Dir, "."+a.Name+unfinished)
	file, err := os.OpenFile(making, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(a.Text())
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = os.Rename(making, f.Path(a.Name))
	}
	if err != nil {
		os.Remove(making)
	}
	return err
}

// lockTime bounds the wait for another attaching process.
const lockTime = 10 * time.Second

// lock excludes other attaching processes until unlock is called. Only this user can open, and so lock, the file.
func (f Files) lock() (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(f.Dir, ".lock"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(f.patience()); ; time.Sleep(5 * time.Millisecond) {
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { file.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(end) {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w: another `pegasus attach` is at it; is that one stopped?", file.Name(), err)
		}
	}
}

func (f Files) patience() time.Duration { return cmp.Or(f.Patience, lockTime) }

// Claim locks the directory for this process until release is called or the process ends: two daemons would start
// hubs for the same domUs. While another process holds the lock, Claim retries until ctx ends, and then returns
// hypervisor.ErrServed.
func (f Files) Claim(ctx context.Context) (release func(), err error) {
	if err := os.MkdirAll(f.Dir, 0o755); err != nil {
		return nil, err
	}
	if err := f.private(); err != nil {
		return nil, err
	}
	return hypervisor.Claim(ctx, f.Dir, "machines")
}

// Remove detaches a name.
func (f Files) Remove(name string) error { return os.Remove(f.Path(name)) }

// List returns all readable attachments, by name, and the errors of the others.
func (f Files) List() (all []Attachment, wrong error) {
	names, err := f.names()
	for _, name := range names {
		a, bad := f.Read(name)
		switch {
		case bad == nil:
			all = append(all, a)
		case !errors.Is(bad, fs.ErrNotExist): // else it has just been removed
			err = errors.Join(err, bad)
		}
	}
	return all, err
}

// private returns an error if other users could put files into the directory.
func (f Files) private() error {
	var st unix.Stat_t
	if err := unix.Stat(f.Dir, &st); err == nil && (st.Uid != 0 && int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0) {
		return fmt.Errorf("%s belongs to user %d with mode %#o, so that others could attach domUs: chown root, chmod 755", f.Dir, st.Uid, st.Mode&0o777)
	}
	return nil
}

// names returns the names with a file, in a directory that no other user can write to.
func (f Files) names() (all []string, err error) {
	if err := f.private(); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(f.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		switch {
		case strings.HasPrefix(e.Name(), "."):
		case f.Valid(e.Name()) != nil || !e.Type().IsRegular():
			err = errors.Join(err, fmt.Errorf("%s: not the file of an attachment: remove it", f.Path(e.Name())))
		default:
			all = append(all, e.Name())
		}
	}
	slices.Sort(all)
	return all, err
}

// reader reads the attachments repeatedly.
type reader struct {
	files   Files
	wrong   complaint
	last    map[string]Attachment
	at      time.Time // time of the last read
	changed time.Time // modification time of the directory then
	held    []Attachment
}

func (f Files) reader(log *slog.Logger) *reader {
	return &reader{files: f, wrong: complaint{log: log, what: "cannot read some domUs' attachments; keeping their last known state", over: "all attachments can be read again"}}
}

// read returns the current attachments. A file that can't be read counts as its last valid content, so that a mistake
// in it ends no programs.
func (r *reader) read() []Attachment {
	var changed time.Time
	if st, err := os.Stat(r.files.Dir); err == nil {
		changed = st.ModTime()
	}
	if changed.Equal(r.changed) && time.Since(r.at) < readEvery {
		return r.held
	}
	r.at, r.changed = time.Now(), changed
	names, wrong := r.files.names()
	next := map[string]Attachment{}
	var all []Attachment
	for _, name := range names {
		a, err := r.files.Read(name)
		was, ok := r.last[name]
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil && !ok:
			wrong = errors.Join(wrong, err)
			continue
		case err != nil:
			wrong, a = errors.Join(wrong, err), was
		}
		next[name] = a
		all = append(all, a)
	}
	r.wrong.about(wrong)
	if names == nil && wrong != nil {
		return r.held
	}
	r.last, r.held = next, all
	return all
}
