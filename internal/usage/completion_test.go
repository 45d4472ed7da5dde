package usage

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The shells that are here complete commands and flags by the scripts.
func TestCompletions(t *testing.T) {
	p, _ := player()
	p.Commands[0].Text = "Plays what's `here` [$(touch ran)]: all."
	p.Commands[0].Flags.Bool("odd", false, "'quoted' \\ \"text\" $(touch ran)")
	for shell, asked := range map[string]map[string]string{
		"bash": {`. ./prog; COMP_WORDS=(prog p); COMP_CWORD=1; _prog; echo "${COMPREPLY[@]}"`: "play\n",
			`. ./prog; COMP_WORDS=(prog play --s); COMP_CWORD=2; _prog; echo "${COMPREPLY[@]}"`: "--speed\n"},
		"fish": {"source prog; complete -C 'prog p'": "play\tPlays what's `here` [$(touch ran)]: all.\n",
			"source prog; complete -C 'prog play --lou'": "--loud\twith sound\n"},
		"zsh": {"_arguments() { print -rl -- $@ }; words=(prog play --s); CURRENT=3; source ./prog": "--loud[with sound]\n" + `--odd['quoted' \ "text" $(touch ran)]` + "\n--speed[number of steps (default 3)]:value:_files\n"},
	} {
		if _, err := exec.LookPath(shell); err != nil {
			t.Logf("no %s here", shell)
			continue
		}
		dir := t.TempDir()
		var script strings.Builder
		if err := p.Completions(&script, shell); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "prog"), []byte(script.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		for command, want := range asked {
			c := exec.Command(shell, "-c", command)
			c.Dir, c.Env = dir, append(os.Environ(), "HOME="+dir)
			if got, err := c.CombinedOutput(); string(got) != want || err != nil {
				t.Errorf("%s: %s: got %q, %v; want %q", shell, command, got, err, want)
			}
		}
		if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
			t.Errorf("%s ran a part of a text", shell)
		}
	}
	if p.Completions(&strings.Builder{}, "csh") == nil {
		t.Error("csh has completions")
	}
}
