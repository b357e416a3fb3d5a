package moriio

import "github.com/pdpool/pdpool/moriio/msgpack"

// LayerMap is the second message of a handshake's answer: for each layer, in the
// order of registration, its packed MoRI MemoryDescs. An attention layer has one,
// a layer with recurrent state two.
type LayerMap []msgpack.Pieces

// maxDescs bounds the memory descriptors of one layer.
const maxDescs = 16

// Append appends m, its layers in their order.
func (m LayerMap) Append(b []byte) []byte { return msgpack.AppendPieces(b, m) }

// ParseLayerMap reads a layer map and keeps its order. The error is an *Error.
func ParseLayerMap(b []byte) (LayerMap, error) {
	if len(b) > MaxMessage {
		return nil, msgpack.Errorf(TooLong, "", "message of %d bytes, the limit is %d", len(b), MaxMessage)
	}
	return msgpack.ParsePieces(b, msgpack.PiecesLimits{Names: MaxLayers, Each: maxDescs, Bytes: MaxDesc})
}
