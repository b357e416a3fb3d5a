package enginesim

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
)

// wordBytes is the unit of content: rows are whole words.
const wordBytes = 8

// Every word of a row is even, salted or not, and every word of poison is odd:
// no poison can pass for content.
const (
	contentMask = ^uint64(1)
	poisonBit   = uint64(1)
)

const golden = 0x9e3779b97f4a7c15

// mix is the finalizer of SplitMix64 (Steele, Lea, Flood 2014): a bijection whose
// output bits each depend on all input bits.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// sequence is the tokens of one request and what their rows hold. It is written
// by the request's own goroutine only, and read by others while that waits.
type sequence struct {
	geometry Geometry
	tokens   []uint32
	// hash[t] depends on the tokens 0 to t: a row tells what came before it.
	hash []uint64
	// salt is XORed to each row of the request; all even, empty for none.
	salt []uint64
}

func newSequence(g Geometry, tokens []uint32, salt string) *sequence {
	s := &sequence{geometry: g, salt: saltOf(salt, g.rowWords())}
	for _, t := range tokens {
		s.append(t)
	}
	return s
}

func (s *sequence) append(token uint32) {
	h := uint64(golden)
	if n := len(s.hash); n > 0 {
		h = s.hash[n-1]
	}
	s.tokens = append(s.tokens, token)
	s.hash = append(s.hash, mix(h^(uint64(token)+1)*golden))
}

// saltOf derives the salt of a request from its name. "" has the salt 0.
func saltOf(name string, words int) []uint64 {
	salt := make([]uint64, words)
	if name == "" {
		return salt
	}
	sum := sha256.Sum256([]byte(name))
	key := binary.LittleEndian.Uint64(sum[:])
	for i := range salt {
		salt[i] = mix(key+uint64(i)*golden) & contentMask
	}
	return salt
}

// rowKey is what the words of one vector grow from.
func (s *sequence) rowKey(layer, plane, head, pos int) uint64 {
	place := uint64(layer)<<44 | uint64(plane)<<40 | uint64(head)<<28 | uint64(pos)
	return mix(mix(place*golden+1) ^ s.hash[pos])
}

// write fills the row of (layer, head, token pos) and returns its digest, which
// is that of the content without salt.
func (s *sequence) write(row []uint64, layer, head, pos int) uint64 {
	n := s.geometry.planeWords()
	digest := uint64(golden)
	for plane := range s.geometry.planes() {
		key := s.rowKey(layer, plane, head, pos)
		part, salt := row[plane*n:(plane+1)*n], s.salt[plane*n:(plane+1)*n]
		for i := range part {
			w := mix(key+uint64(i)*golden) & contentMask
			digest = bits.RotateLeft64(digest^w, 23) * golden
			part[i] = w ^ salt[i]
		}
	}
	return mix(digest)
}

// read takes the salt from a row, and returns the digest of what is left and
// whether each word is the one that belongs there.
func (s *sequence) read(row []uint64, layer, head, pos int) (digest uint64, right bool) {
	n := s.geometry.planeWords()
	digest = golden
	wrong := uint64(0)
	for plane := range s.geometry.planes() {
		key := s.rowKey(layer, plane, head, pos)
		part, salt := row[plane*n:(plane+1)*n], s.salt[plane*n:(plane+1)*n]
		for i, have := range part {
			have ^= salt[i]
			wrong |= have ^ mix(key+uint64(i)*golden)&contentMask
			digest = bits.RotateLeft64(digest^have, 23) * golden
		}
	}
	return mix(digest), wrong == 0
}

// isPoison says whether a row holds one odd word over and over: nobody has written
// it, or has written what nobody had written at the source.
func isPoison(row []uint64) bool {
	if row[0]&poisonBit == 0 {
		return false
	}
	for _, w := range row[1:] {
		if w != row[0] {
			return false
		}
	}
	return true
}
