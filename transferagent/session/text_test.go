package session_test

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/kvproto"
	"github.com/pdpool/pdpool/transferagent/session"
)

func connText(c session.Conn) string {
	if c.Kind == kvproto.Scheduler {
		return fmt.Sprintf("scheduler %d", c.DP)
	}
	return fmt.Sprintf("worker %d/%d", c.DP, c.TP)
}

func noticeText(m kvproto.Message) string {
	switch m := m.(type) {
	case kvproto.Done:
		return "done " + m.Transfer
	case kvproto.Quiet:
		return "quiet " + m.Transfer
	case kvproto.Released:
		return "released " + m.Transfer
	case kvproto.Failed:
		return fmt.Sprintf("failed %s %s: %s", m.Transfer, m.Rule, m.Text)
	}
	return fmt.Sprintf("%#v", m)
}

func messageText(m any) string {
	switch m := m.(type) {
	case *moriio.RemoteBlocks:
		a := m.PDPool
		return fmt.Sprintf("remote_blocks %s %v to dp %d tokens %d..%d hash=%x epochs %d>%d prefill dp %d",
			m.Transfer, m.Blocks, m.DecodeRank, a.FirstToken, a.Tokens, a.Hash, a.Epoch, a.PeerEpoch, a.PrefillDP)
	case *moriio.WriteDone:
		return "write_done " + reportText(m.Transfer, m.PDPool)
	case *moriio.WriteFailed:
		return fmt.Sprintf("write_failed %s %s: %s", reportText(m.Transfer, m.PDPool), m.PDPool.Rule, m.PDPool.Text)
	case *moriio.Release:
		return fmt.Sprintf("release %s epoch %d %s: %s", m.Transfer, m.PDPool.Epoch, m.PDPool.Rule, m.PDPool.Text)
	}
	return fmt.Sprintf("%#v", m)
}

func reportText(transfer string, r *moriio.Report) string {
	writer, reader := fmt.Sprintf("%d/%d", r.WriterDP, r.WriterTP), strconv.Itoa(r.ReaderTP)
	if r.WriterTP == session.AllRanks && r.ReaderTP == session.AllRanks {
		writer, reader = fmt.Sprintf("%d/all", r.WriterDP), "all"
	}
	return fmt.Sprintf("%s %s>%s bytes=%d epoch %d", transfer, writer, reader, r.Bytes, r.Epoch)
}

func orderText(o session.CopyOrder) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d %s to %s@%d %d/%d>%d/%d memory %d>%d bytes=%d:", o.ID, o.Transfer, o.Peer.Host, o.Epoch,
		o.WriterDP, o.WriterTP, o.ReaderDP, o.ReaderTP, o.Source, o.Target, kvlayout.PlanBytes(o.Copies))
	for _, c := range o.Copies {
		fmt.Fprintf(&text, " %d>%d*%d", c.Src, c.Dst, c.Length)
		if c.Count > 1 {
			fmt.Fprintf(&text, "x%d(%d,%d)", c.Count, c.SrcStride, c.DstStride)
		}
	}
	return text.String()
}
