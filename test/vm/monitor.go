package vm

import (
	"encoding/json"
	"fmt"
	"net"
	"time"
)

// A monitor is a QMP connection to the QEMU of a running machine.
type monitor struct {
	conn net.Conn
	in   *json.Decoder
}

// monitor connects to the monitor of a machine that was started with Monitor.
func (r *Running) monitor() (*monitor, error) {
	c, err := net.Dial("unix", r.path("monitor"))
	if err != nil {
		return nil, err
	}
	m := &monitor{c, json.NewDecoder(c)}
	c.SetDeadline(time.Now().Add(soon))
	var greeting struct{ QMP any }
	if err = m.in.Decode(&greeting); err == nil {
		_, err = m.do("qmp_capabilities", nil)
	}
	return m, err
}

// do executes a command.
func (m *monitor) do(command string, arguments any) (json.RawMessage, error) {
	b, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
	}{command, arguments})
	if err != nil {
		return nil, err
	}
	m.conn.SetDeadline(time.Now().Add(bootTime))
	if _, err := m.conn.Write(b); err != nil {
		return nil, err
	}
	for {
		var said struct {
			Return json.RawMessage
			Error  *struct{ Desc string }
		}
		if err := m.in.Decode(&said); err != nil {
			return nil, err
		}
		switch {
		case said.Error != nil:
			return nil, fmt.Errorf("%s: %s", command, said.Error.Desc)
		case said.Return != nil:
			return said.Return, nil
		}
	}
}

// job executes a command that starts a job of QEMU's, and blocks until the job has ended.
func (m *monitor) job(command string, arguments map[string]any) error {
	arguments["job-id"] = "job"
	if _, err := m.do(command, arguments); err != nil {
		return err
	}
	for ; ; time.Sleep(20 * time.Millisecond) {
		b, err := m.do("query-jobs", nil)
		if err != nil {
			return err
		}
		var jobs []struct{ Status, Error string }
		if err := json.Unmarshal(b, &jobs); err != nil {
			return err
		}
		if len(jobs) != 1 || jobs[0].Status != "concluded" {
			continue
		}
		if _, err := m.do("job-dismiss", map[string]any{"id": "job"}); err != nil {
			return err
		}
		if jobs[0].Error != "" {
			return fmt.Errorf("%s: %s", command, jobs[0].Error)
		}
		return nil
	}
}

// addStore adds a file to QEMU in which it can store snapshots of the machine.
func (m *monitor) addStore(path string) error {
	err := m.job("blockdev-create", map[string]any{"options": map[string]any{"driver": "file", "filename": path, "size": 0}})
	if err == nil {
		_, err = m.do("blockdev-add", map[string]any{"driver": "file", "filename": path, "node-name": "file"})
	}
	if err == nil {
		err = m.job("blockdev-create", map[string]any{"options": map[string]any{"driver": "qcow2", "file": "file", "size": 1 << 20}})
	}
	if err == nil {
		_, err = m.do("blockdev-add", map[string]any{"driver": "qcow2", "file": "file", "node-name": "store"})
	}
	return err
}

// snapshot executes snapshot-save or snapshot-load.
func (m *monitor) snapshot(what string) error {
	return m.job("snapshot-"+what, map[string]any{"tag": "state", "vmstate": "store", "devices": []string{"store"}})
}
