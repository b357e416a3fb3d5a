package moriio

import (
	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio/msgpack"
)

var registrationRoles = []msgpack.Choice[kvlayout.Role]{
	{Value: kvlayout.Prefill, Name: "P"},
	{Value: kvlayout.Decode, Name: "D"},
}

var transferModes = []msgpack.Choice[kvlayout.Mode]{
	{Value: kvlayout.Write, Name: "WRITE"},
	{Value: kvlayout.Read, Name: "READ"},
}

// Append appends m.
func (m *Registration) Append(b []byte) []byte { return write(b, m, registrationFields) }

// ParseRegistration reads a registration and checks the syntax of its addresses,
// not that the sender owns them. The error is an *Error.
func ParseRegistration(b []byte) (*Registration, error) {
	m, err := parse(b, registrationFields)
	if err != nil {
		return nil, err
	}
	if _, _, err := ParseHTTPAddress(m.HTTPAddress); err != nil {
		return nil, err
	}
	if _, _, _, err := ParseZMQAddress(m.ZMQAddress); err != nil {
		return nil, err
	}
	return m, nil
}

func registrationFields(c *msgpack.Codec, m *Registration) {
	msgpack.Enum(c, "type", &m.Role, registrationRoles)
	msgpack.String(c, "http_address", &m.HTTPAddress, MaxString)
	msgpack.String(c, "zmq_address", &m.ZMQAddress, MaxString)
	msgpack.Int(c, "dp_size", &m.DPSize, 1, MaxRanks)
	msgpack.Int(c, "tp_size", &m.TPSize, 1, MaxRanks)
	msgpack.Enum(c, "transfer_mode", &m.TransferMode, transferModes)
	msgpack.Nested(c, "pdpool", &m.PDPool, instanceFields)
}

func instanceFields(c *msgpack.Codec, i *Instance) {
	msgpack.String(c, "namespace", &i.Namespace, MaxString)
	msgpack.String(c, "pool", &i.Pool, MaxString)
	msgpack.String(c, "pod", &i.Pod, MaxString)
	msgpack.String(c, "pairing", &i.Pairing, MaxString)
	msgpack.String(c, "revision", &i.Revision, MaxString)
	msgpack.Struct(c, "layout", &i.Layout, layoutFields)
	msgpack.Int(c, "block", &i.Block, 0, msgpack.MaxInt32)
	msgpack.String(c, "kv_type", &i.KVType, MaxString)
	msgpack.String(c, "model", &i.Model, MaxString)
	msgpack.String(c, "agent", &i.Agent, MaxString)
	msgpack.Bool(c, "draining", &i.Draining)
}
