package control

import "time"

// Config is the configuration in force, and what a reload would change.
type Config struct {
	Config string       `json:"config"` // path of the file; empty: built-in defaults
	Tables []Table      `json:"tables"` // in an order in which they can be a file
	Keys   []SettingKey `json:"keys"`   // all keys there are
	Reload Pending      `json:"reload"`
}

// Table is a table of the configuration with all its settings in force.
type Table struct {
	Table    string    `json:"table"`          // daemon, api, default_domain, accelerator or domain
	Name     string    `json:"name,omitempty"` // of the accelerator or domain
	Settings []Setting `json:"settings"`
}

// Setting is a setting in force.
type Setting struct {
	Key     string `json:"key"`
	Value   string `json:"value"`   // as spelled in TOML
	Default string `json:"default"` // the value that no file gives, as spelled in TOML
	Origin  Origin `json:"origin"`
}

// SettingKey describes a key of the configuration.
type SettingKey struct {
	Table   string `json:"table"`
	Key     string `json:"key"`
	Default string `json:"default"`        // the value without a line in the file
	Unit    string `json:"unit,omitempty"` // of the values
	Allowed string `json:"allowed"`        // the accepted values
	Help    string `json:"help"`           // its meaning
	Restart bool   `json:"restart"`        // the daemon adopts a change of the file at its next start
}

// Origin is the source of a setting.
type Origin struct {
	Source string    `json:"source"` // file, default_domain, specification, default, set, create, run, machine, flag, or before: the daemon keeps an older value
	File   string    `json:"file,omitempty"`
	Line   int       `json:"line,omitempty"` // counted from 1; 0: the whole file
	By     *Caller   `json:"by,omitempty"`   // of set and create: the caller; of run: the program
	At     time.Time `json:"at,omitzero"`    // of set and create
}

// Sources of settings, beside those of package configs.
const (
	FromSet     = "set"     // pegasus set, policy or log
	FromCreate  = "create"  // pegasus create
	FromRun     = "run"     // pegasus run, while the program runs
	FromMachine = "machine" // the virtual machine's definition
	FromFlag    = "flag"    // the daemon's command line
	FromBefore  = "before"  // an earlier configuration, until the daemon or the domain ends
)

// Pending is what a reload of the configuration would do now.
type Pending struct {
	Changes  []PendingChange `json:"changes"`
	Mistakes []Mistake       `json:"mistakes"` // for which the reload would be refused
	Warnings []string        `json:"warnings,omitempty"`
}

// PendingChange is a difference between the files and the settings in force.
type PendingChange struct {
	Text    string `json:"text"`
	Restart bool   `json:"restart"` // it takes effect at the daemon's next start, not at a reload
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
}

// Mistake is an error of a configuration's file.
type Mistake struct {
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"` // counted from 1; 0: the whole file
	Text string `json:"text"`           // with the place
}

// Log is the level of the daemon's log, and of its workers'.
type Log struct {
	Level  string `json:"level"` // debug, info, warn or error
	Origin Origin `json:"origin"`
}

// LogParams changes the level of the log.
type LogParams struct {
	Level string `json:"level"` // debug, info, warn or error
}
