// Package records stores the domains of prepared claims in files, one for each claim, from before the domain exists
// until after it has gone. The records outlive the driver, the daemon and the node's restarts.
//
// Callers: package driver.
//
// Trust boundary: only root writes the directory.
package records

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"pegasus/backend/statefile"
	"pegasus/cluster/claims"
)

// Dir is a directory of records.
type Dir string

const suffix = ".json"

func (d Dir) path(claim types.UID) string { return filepath.Join(string(d), string(claim)+suffix) }

// Write writes the record of a domain.
func (d Dir) Write(of *claims.Domain) error {
	err := os.MkdirAll(string(d), 0o700)
	if err == nil {
		err = statefile.Write(d.path(of.UID), of)
	}
	if err != nil {
		return fmt.Errorf("write record of claim %s: %w", of, err)
	}
	return nil
}

// Read returns the record of a claim, nil if there is none.
func (d Dir) Read(claim types.UID) (*claims.Domain, error) {
	text, err := os.ReadFile(d.path(claim))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	of := new(claims.Domain)
	if err == nil {
		err = json.Unmarshal(text, of)
	}
	if err == nil && of.UID != claim {
		err = fmt.Errorf("it is of claim %s", of.UID)
	}
	if err != nil {
		return nil, fmt.Errorf("read record %s: %w; remove the file, and delete the pods of the claim", d.path(claim), err)
	}
	return of, nil
}

// Remove removes the record of a claim, if there is one.
func (d Dir) Remove(claim types.UID) error {
	if err := os.Remove(d.path(claim)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove record: %w", err)
	}
	return nil
}

// All returns all records, and an error that joins those that can't be read.
func (d Dir) All() (all []*claims.Domain, err error) {
	entries, err := os.ReadDir(string(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	errs := []error{err}
	for _, e := range entries {
		uid, ok := strings.CutSuffix(e.Name(), suffix)
		if !ok {
			continue
		}
		of, err := d.Read(types.UID(uid))
		if of != nil {
			all = append(all, of)
		}
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}
