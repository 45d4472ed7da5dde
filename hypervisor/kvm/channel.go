package kvm

import (
	"fmt"

	"pegasus/callbuf/bell"
)

// channel returns libvirt's XML of the port by which hub and agent of a region's machine wake each other. A QEMU that
// connects does so again after each second without a hub.
func channel(a Attachment, alias string) string {
	source := fmt.Sprintf("<source mode='bind' path='%s'/>", escape(PortPath(a.Region)))
	if a.Served {
		source = fmt.Sprintf("<source mode='connect' path='%s'>\n        <reconnect enabled='yes' timeout='1'/>\n      </source>", escape(PortPath(a.Region)))
	}
	return fmt.Sprintf(`<channel type='unix'>
      %s
      <target type='virtio' name='%s'/>
      <alias name='%s'/>
    </channel>`, source, bell.Name, alias)
}
