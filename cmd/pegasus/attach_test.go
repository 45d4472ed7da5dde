package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"pegasus/hypervisor/kvm"
	"pegasus/hypervisor/libvirt"
)

// fakeLibvirt is pegasus-libvirt as scripts have it: a machine's definition is the file
// NAME.xml, and it runs if there is NAME.live, is transient if there is NAME.transient, and was saved if NAME.saved.
func fakeLibvirt(args []string) int {
	err := func() error {
		name := args[len(args)-1]
		if args[0] == "define" {
			text, err := io.ReadAll(os.Stdin)
			if err != nil {
				return err
			}
			d, err := kvm.Parse(text)
			if err != nil {
				return err
			}
			name = d.Name
			if err := os.WriteFile(name+".xml", text, 0o644); err != nil {
				return err
			}
		}
		text, err := os.ReadFile(name + ".xml")
		if err != nil {
			return fmt.Errorf("Domain not found: no domain with matching name '%s'", strings.TrimSuffix(name, ".xml"))
		}
		s := libvirt.Shown{Definition: string(text)}
		_, err = os.Stat(name + ".live")
		s.Runs = err == nil
		_, err = os.Stat(name + ".saved")
		s.Saved = err == nil
		_, err = os.Stat(name + ".transient")
		s.Lasting = err != nil
		return json.NewEncoder(os.Stdout).Encode(s)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
