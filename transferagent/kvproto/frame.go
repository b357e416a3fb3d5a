package kvproto

import (
	"encoding/binary"

	"github.com/pdpool/pdpool/moriio/msgpack"
)

// HeaderBytes is the length of what comes before a frame's body.
const HeaderBytes = 4

// Error says why a message was refused; its Reason is one of the constants below,
// fit for a metric label.
type Error = msgpack.Error

// The reasons of an Error.
const (
	Truncated   = msgpack.Truncated
	TooLong     = msgpack.TooLong
	BadField    = msgpack.BadField
	UnknownType = msgpack.UnknownType
	Malformed   = msgpack.Malformed
)

// Append appends the whole frame of m to b. An *Error says that m breaks a limit
// which Parse holds it to, or is no message of this protocol; b is then returned
// as it was. Failed.Text and Refused.Text are cut to MaxText instead.
func Append(b []byte, m Message) ([]byte, error) {
	if m == nil {
		return b, msgpack.Errorf(UnknownType, "", "no message")
	}
	s, ok := shapes[m.Type()]
	if !ok {
		return b, msgpack.Errorf(UnknownType, "", "message of type %.64q", m.Type())
	}
	start := len(b)
	c := msgpack.Writer(append(b, 0, 0, 0, 0))
	c.Const("type", m.Type())
	s.write(c, m)
	if err := c.Err(); err != nil {
		return b, err
	}
	out := c.Bytes()
	body := len(out) - start - HeaderBytes
	if body > MaxFrame {
		return b, msgpack.Errorf(TooLong, "", "frame of %d bytes, the limit is %d", body, MaxFrame)
	}
	binary.BigEndian.PutUint32(out[start:], uint32(body))
	return out, nil
}

// BodyLength reads the header of a frame: how many bytes of body follow. An *Error
// says that it is over MaxFrame or 0.
func BodyLength(header [HeaderBytes]byte) (int, error) {
	n := binary.BigEndian.Uint32(header[:])
	switch {
	case n > MaxFrame:
		return 0, msgpack.Errorf(TooLong, "", "frame of %d bytes, the limit is %d", n, MaxFrame)
	case n == 0:
		return 0, msgpack.Errorf(Truncated, "", "empty frame")
	}
	return int(n), nil
}

// Parse reads the body of one frame; the message is one of the structs of this
// package, by value, and keeps nothing of body. The error is an *Error.
func Parse(body []byte) (Message, error) {
	if len(body) > MaxFrame {
		return nil, msgpack.Errorf(TooLong, "", "frame of %d bytes, the limit is %d", len(body), MaxFrame)
	}
	c, err := msgpack.Reader(body)
	if err != nil {
		return nil, err
	}
	kind := c.Text("type")
	s, ok := shapes[kind]
	if !ok {
		return nil, msgpack.Errorf(UnknownType, "", "message of type %.64q", kind)
	}
	m := s.read(c)
	if err := c.Err(); err != nil {
		return nil, err
	}
	return m, nil
}

// shape reads and writes one type of message.
type shape struct {
	read  func(*msgpack.Codec) Message
	write func(*msgpack.Codec, Message)
}

func shapeOf[T Message](fields func(*msgpack.Codec, *T)) shape {
	return shape{
		read: func(c *msgpack.Codec) Message {
			var m T
			fields(c, &m)
			return m
		},
		write: func(c *msgpack.Codec, m Message) {
			v, ok := m.(T)
			if !ok {
				c.Fail(UnknownType, "", "message of the Go type %T", m)
				return
			}
			fields(c, &v)
		},
	}
}

var shapes = map[string]shape{
	Hello{}.Type():    shapeOf(helloFields),
	Welcome{}.Type():  shapeOf(welcomeFields),
	Memory{}.Type():   shapeOf(memoryFields),
	Region{}.Type():   shapeOf(regionFields),
	Ready{}.Type():    shapeOf(func(*msgpack.Codec, *Ready) {}),
	Expect{}.Type():   shapeOf(expectFields),
	Hold{}.Type():     shapeOf(holdFields),
	Save{}.Type():     shapeOf(saveFields),
	Sealed{}.Type():   shapeOf(func(c *msgpack.Codec, m *Sealed) { transferField(c, &m.Transfer) }),
	Receive{}.Type():  shapeOf(receiveFields),
	Abort{}.Type():    shapeOf(func(c *msgpack.Codec, m *Abort) { transferField(c, &m.Transfer) }),
	Done{}.Type():     shapeOf(func(c *msgpack.Codec, m *Done) { transferField(c, &m.Transfer) }),
	Failed{}.Type():   shapeOf(failedFields),
	Quiet{}.Type():    shapeOf(func(c *msgpack.Codec, m *Quiet) { transferField(c, &m.Transfer) }),
	Released{}.Type(): shapeOf(func(c *msgpack.Codec, m *Released) { transferField(c, &m.Transfer) }),
	Refused{}.Type():  shapeOf(refusedFields),
}
