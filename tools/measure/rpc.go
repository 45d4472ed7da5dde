package main

import (
	"encoding/binary"
	"net"

	"pegasus/cuda"
)

// serveRPC is the peer of a synchronous call: a server like a worker, which answers a packet on a unix socket
// with a packet.
func serveRPC(path string) (*net.UnixListener, error) {
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return // closed
			}
			go answer(c)
		}
	}()
	return l, nil
}

// answer serves one client until it hangs up.
func answer(c *net.UnixConn) {
	defer c.Close()
	packet := make([]byte, 64)
	for {
		n, err := c.Read(packet)
		if err != nil || n < 2 {
			return
		}
		r := cuda.ErrorNotSupported
		if cuda.Op(binary.LittleEndian.Uint16(packet)) == 0 {
			r = cuda.Success
		}
		binary.LittleEndian.PutUint32(packet, uint32(r))
		if _, err := c.Write(packet[:n]); err != nil {
			return
		}
	}
}
