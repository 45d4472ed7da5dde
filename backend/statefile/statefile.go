// Package statefile replaces the daemon's files of JSON atomically.
//
// Callers: backend and backend/workers.
//
// Trust boundary: only root and the daemon's user can write the runtime directory.
package statefile

import (
	"encoding/json"
	"os"
)

// Write replaces the file at path by one with v as JSON, which only the daemon's user can read.
func Write(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	err = os.WriteFile(path+".new", data, 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		os.Remove(path + ".new")
	}
	return err
}
