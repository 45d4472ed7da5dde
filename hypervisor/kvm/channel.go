package kvm

import (
	"fmt"

	"pegasus/callbuf/bell"
)

// channel returns libvirt's XML of the port by which hub and agent of a region's machine wake each other.
func channel(region, alias string) string {
	return fmt.Sprintf(`<channel type='unix'>
      <source mode='bind' path='%s'/>
      <target type='virtio' name='%s'/>
      <alias name='%s'/>
    </channel>`, escape(PortPath(region)), bell.Name, alias)
}
