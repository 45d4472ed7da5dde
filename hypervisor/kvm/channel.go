package kvm

import (
	"fmt"

	"pegasus/callbuf/bell"
)

// channel is the port by which hub and agent of a region's machine wake each other, as libvirt
// calls it.
func channel(region, alias string) string {
	return fmt.Sprintf(`<channel type='unix'>
      <source mode='bind' path='%s'/>
      <target type='virtio' name='%s'/>
      <alias name='%s'/>
    </channel>`, escape(PortPath(region)), bell.Name, alias)
}
