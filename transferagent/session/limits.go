package session

import "github.com/pdpool/pdpool/transferagent/kvproto"

// Limits bound what a machine keeps. A zero means the default.
type Limits struct {
	// Transfers is the number of live transfers (default 4096). Beyond it Expect
	// and peers' messages are errors, and Hold and Receive are answered by Failed.
	Transfers int
	// Early is the number of remote_blocks that prefill keeps for transfers that its own
	// engine has not named yet (default 1024), and as many release without blocks, of
	// which the oldest makes room.
	Early int
	// Blocks is the number of blocks of one transfer on one side (default
	// kvproto.MaxBlocks).
	Blocks int
	// LiveBlocks is the number of blocks of all live transfers that the machine keeps
	// at a time (default 16 times kvproto.MaxBlocks), those of asks ahead of the engine aside.
	LiveBlocks int
	// Orders is the number of copy orders that are open with one peer, and Pieces that
	// of their copies (defaults 256 and 32,768). LivePieces is that of all peers (default
	// 262,144): beyond it each has one order open at a time. An order may exceed what is left.
	Orders, Pieces, LivePieces int
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
	}{
		{&l.Transfers, 4096},
		{&l.Early, 1024},
		{&l.Blocks, kvproto.MaxBlocks},
		{&l.Peers, 1024},
		{&l.LiveBlocks, 16 * kvproto.MaxBlocks},
		{&l.Orders, 256},
		{&l.Pieces, 1 << 15},
		{&l.LivePieces, 1 << 18},
	} {
		if *d.value <= 0 {
			*d.value = d.def
		}
	}
	return l
}
