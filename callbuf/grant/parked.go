package grant

import "os"

// Pages and channels last as long as their files, which another process may keep for one that is
// to come. What that finds in them is what was there.

// File is the channel's, for who keeps it.
func (c *Channel) File() *os.File { return c.events.file }

// ResumeChannel is a channel whose file was kept, and which has that port. The file has to be one that doesn't block.
func ResumeChannel(f *os.File, port Port) *Channel { return &Channel{&Events{f}, port} }

// ResumeGrant are the pages of a grant whose file was kept; their numbers aren't known here.
func ResumeGrant(f *os.File, pages int) *Grant { return &Grant{File: f, Refs: make([]Ref, pages)} }
