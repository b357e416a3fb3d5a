package session

import "github.com/pdpool/pdpool/transferagent/kvproto"

// Limits bound what a machine keeps. A zero means the default.
type Limits struct {
	// Transfers is the number of live transfers (default 4096). Beyond it Expect
	// and peers' messages are errors, and Hold and Receive are answered by Failed.
	Transfers int
	// Early is the number of remote_blocks and release that prefill remembers for
	// transfers that its own engine has not named yet (default 1024).
	Early int
	// Blocks is the number of blocks of one transfer on one side (default
	// kvproto.MaxBlocks).
	Blocks int
	// Peers is the number of peers whose metadata is kept (default 1024); the one
	// unused for longest makes room.
	Peers int
}

// Remembered is the number of ended transfers that a machine remembers, to answer
// questions and to keep late messages from starting anything.
const Remembered = 4096

func (l Limits) defaulted() Limits {
	for _, d := range []struct {
		value *int
		def   int
	}{{&l.Transfers, 4096}, {&l.Early, 1024}, {&l.Blocks, kvproto.MaxBlocks}, {&l.Peers, 1024}} {
		if *d.value <= 0 {
			*d.value = d.def
		}
	}
	return l
}
