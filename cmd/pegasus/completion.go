package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pegasus/backend/client"
	"pegasus/configs"
	"pegasus/hypervisor/libvirt"
	"pegasus/policies"
	"pegasus/sim"
)

// completer returns the candidates for the next operand of a command. It runs while a user waits at a prompt: it starts no
// daemon, and returns nothing if it fails.
type completer func(c *call, operands []string) ([]string, cobra.ShellCompDirective)

// completionTime bounds how long a prompt waits for a daemon or for libvirt.
const completionTime = 500 * time.Millisecond

func completion(c *call) action {
	return c.takes(1, 1, func(operands []string) error {
		root := tree(c.streams)
		var script strings.Builder
		var err error
		switch operands[0] {
		case "bash":
			err = root.GenBashCompletionV2(&script, true)
		case "zsh":
			err = root.GenZshCompletion(&script)
		case "fish":
			err = root.GenFishCompletion(&script, true)
		default:
			return usagef("%q: must be one of bash, zsh, fish%s", operands[0], configs.DidYouMean(operands[0], shells))
		}
		if err != nil {
			return err
		}
		text := script.String()
		for _, r := range withoutEval[operands[0]] {
			if !strings.Contains(text, r.cobra) {
				return fmt.Errorf("completions for %s: the script has no line %q", operands[0], r.cobra)
			}
			text = strings.Replace(text, r.cobra, r.ours, 1)
		}
		_, err = io.WriteString(c.out, text)
		return err
	})
}

// withoutEval has replacements in cobra's scripts, which evaluate the words before the cursor: the tabulator key would
// run command substitutions and redirections that the user has not entered yet. Only ~/ is expanded.
var withoutEval = map[string][]struct{ cobra, ours string }{
	"bash": {{`out=$(eval "${requestComp}" 2>/dev/null)`, `args=("${args[@]/#\~\//$HOME/}")
    out=$("${words[0]/#\~\//$HOME/}" __complete "${args[@]}" 2>/dev/null)`}},
	"zsh": {{`out=$(eval ${requestComp} 2>/dev/null)`, `local -a args
    args=("${(@Q)words[2,-1]}")
    if [ "${lastChar}" = "" ] && [ "${args[-1]}" != "" ]; then
        args+=("")
    fi
    out=$("${${(Q)words[1]}/#\~\//$HOME/}" __complete "${(@)args/#\~\//$HOME/}" 2>/dev/null)`}},
	"fish": {{`set -l args (commandline -opc)`, `set -l args (commandline -opc | string replace -r '^~/' "$HOME/")`},
		{`set -l lastArg (string escape -- (commandline -ct))`, `set -l lastArg (commandline -ct | string replace -r '^~/' "$HOME/")`},
		{`set -l results (eval $requestComp 2> /dev/null)`, `set -l results ($args[1] __complete $args[2..-1] "$lastArg" 2> /dev/null)`}},
}

var shells = []string{"bash", "zsh", "fish"}

// completeWith sets the completions of a command's operands and of its flags' values.
func completeWith(cc *cobra.Command, c *call, operands completer) {
	if operands != nil {
		cc.ValidArgsFunction = forShell(c, operands)
	}
	c.flags.VisitAll(func(f *pflag.Flag) {
		kind, _ := pflag.UnquoteUsage(f)
		values := map[string]completer{"domain": oneDomain, "accelerator": anAccelerator, "policy": aPolicy, "mode": words("production", "paper"),
			"device": words("nvdimm", "ivshmem")}[f.Name]
		switch {
		case values != nil:
		case f.NoOptDefVal != "" || kind == "file":
			return // a flag without a value, or files, as the shell completes them
		case kind == "directory":
			values = directories
		default:
			values = words()
		}
		if err := cc.RegisterFlagCompletionFunc(f.Name, forShell(c, func(c *call, _ []string) ([]string, cobra.ShellCompDirective) { return values(c, nil) })); err != nil {
			panic(err) // a flag twice
		}
	})
}

// forShell bounds a completer's time.
func forShell(c *call, complete completer) cobra.CompletionFunc {
	return func(_ *cobra.Command, operands []string, typed string) ([]string, cobra.ShellCompDirective) {
		type result struct {
			values    []string
			directive cobra.ShellCompDirective
		}
		done := make(chan result, 1)
		go func() {
			values, directive := complete(c, operands)
			done <- result{values, directive}
		}()
		select {
		case r := <-done:
			return slices.DeleteFunc(r.values, func(v string) bool { return !strings.HasPrefix(v, typed) }), r.directive
		case <-time.After(completionTime):
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
	}
}

// plainDescriptions removes the marks of values' names from the texts of flags, which shells show.
func plainDescriptions(root *cobra.Command) {
	for _, cc := range root.Commands() {
		cc.Flags().VisitAll(func(f *pflag.Flag) { _, f.Usage = pflag.UnquoteUsage(f) })
	}
}

func directories(*call, []string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// words returns a completer of the first operand, or of a value, that has these.
func words(all ...string) completer {
	return first(func(*call) []string { return slices.Clone(all) })
}

// first returns a completer of the first operand.
func first(values func(c *call) []string) completer {
	return func(c *call, operands []string) ([]string, cobra.ShellCompDirective) {
		if len(operands) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return values(c), cobra.ShellCompDirectiveNoFileComp
	}
}

var (
	oneDomain     = first(domainNames)
	anAccelerator = first(acceleratorNames)
	aPolicy       = first(func(*call) []string { return policies.Names() })
	toAttach      = first(definedMachines)
	toDetach      = first(attachedMachines)
)

func domainNames(c *call) (names []string) {
	all, _ := ask(c, (*client.Client).Domains)
	for _, d := range all {
		names = append(names, d.Name)
	}
	return names
}

func acceleratorNames(c *call) (names []string) {
	all, _ := ask(c, (*client.Client).Accelerators)
	for _, a := range all {
		names = append(names, a.Name)
	}
	return names
}

// definedMachines returns the names of the domUs or, elsewhere, of the machines that libvirt defines.
func definedMachines(c *call) (names []string) {
	if inDom0() {
		return domUs()
	}
	completeLibvirt(c, &names, "names")
	return names
}

// attachedMachines returns the names of the domUs or, elsewhere, of the machines with an accelerator.
func attachedMachines(c *call) (names []string) {
	if inDom0() {
		return domUs()
	}
	var all []libvirt.Listed
	completeLibvirt(c, &all, "list", "--regions", c.flags.Lookup("regions").Value.String())
	for _, m := range all {
		names = append(names, m.Name)
	}
	return names
}

func domUs() []string {
	all, _ := domUNames()
	return slices.Collect(maps.Values(all))
}

// completeLibvirt decodes the answer of pegasus-libvirt, if there is one within completionTime.
func completeLibvirt(c *call, answer any, args ...string) {
	if program, err := findLibvirt(); err == nil {
		out, _ := askLibvirt(completionTime, program, nil, append(args, "--connect", c.flags.Lookup("connect").Value.String())...)
		json.Unmarshal(out, answer)
	}
}

// settings returns a completer of KEY= after a domain, which exists or, with domain nil, is new.
func settings(domain completer) completer {
	return func(c *call, operands []string) ([]string, cobra.ShellCompDirective) {
		if len(operands) == 0 {
			return domain(c, operands)
		}
		return settingKeys(c, operands[1:])
	}
}

// settingKeys completes the KEY= that the operands don't have yet.
func settingKeys(_ *call, operands []string) (keys []string, _ cobra.ShellCompDirective) {
	for _, k := range configs.SettingKeys() {
		if !slices.ContainsFunc(operands, func(o string) bool { return strings.HasPrefix(o, k+"=") }) {
			keys = append(keys, k+"=")
		}
	}
	return keys, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// scenarios completes the subcommands of sim, and the scenarios. Files of scenarios and traces are completed, too.
func scenarios(c *call, operands []string) (names []string, _ cobra.ShellCompDirective) {
	if len(operands) == 0 {
		names = []string{"list", "run", "replay", "coordination"}
	}
	if len(operands) > 0 && operands[0] != "run" {
		return nil, cobra.ShellCompDirectiveDefault
	}
	ids, _ := sim.Names()
	return append(append(names, ids...), "all"), cobra.ShellCompDirectiveDefault
}
