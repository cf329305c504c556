package dsynctest

import (
	"cmp"
	"strings"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// scripts returns scripts that test the effects of edits on the holders and the queue of a key. A script is a state,
// followed by edits, each with the state afterwards. This is the notation:
//
//	a2 b | c d3           a and b hold and c and d wait, in this order; a has the weight 2, and d 3
//	A b/4 c:7 d~ e=once   A is of another session; b has the limit 4, c the tick 7, d yields, and e is of the kind once
//	a! b? c'              a has a long lease, b a short one, and c has a value
//	.                     the same state as before
//	? |                   this state, which Load need not show yet
//	leave a; keep a       a Release, and one with Keep
//	keep a sooner         a Release with a shorter Keep; longer, with a longer one; briefly, with one to wait for
//	leave a by id         a Release that has only the key and the id of a
//	leave a to c          a Release with the successor c; with Keep, too
//	leave a early         a Release with Early, as if a's session knew of no waiters; with keep and seal, too
//	seal a 7              a Release that seals up to tick 7
//	join e; try e         an Acquire that waits, and one that doesn't
//	join e first late     an Acquire at the head of the queue, after its NotAfter; for try, too
//	join e again          a late copy of e's first Acquire
//	expire A              A's session expires
//	join e naming         an Acquire that names the session of A as expired; for try, too
//	join e/4 over         an Acquire whose kind and limit the free key takes over
//	mismatch e/4          an Acquire and a try, both refused with a MismatchError
//	e for a               a Release of a with an Acquire of e
//	e for a late          the same, after the NotAfter of the Acquire
//	discard a b           a Discard of both
//	extend a              an Extend by the lease of a; shorter, by less
//	extend a once more    a late copy of a's last Extend; with before it, of the Extend before that
//	extend a late         an Extend with the token that a had before "join a again"; with b, with the token of b
//	lapse a               no edit; the end of a's hold comes
//	wait                  no edit; the store's clock goes on
//	publish a text 3      a Publish by a with the sequence number 3, by default the next; the text is by default "a"
//	resize 5; resize 3=x  a Resize to 5, and one with another kind
//	resize 5 from 3       a Resize from another limit than the key has
//	forget; forget a      a Forget with the last token, and one with a's token
//	observe               no edit; from now on, changes of the key are notified
//
// Two slashes begin another script, which runs on another key. The states determine what each edit must return:
// whether a Release found its claim, the error, the notices, and the position of a claim that joins.
func scripts() []scriptRow {
	return []scriptRow{
		{name: "Acquire/HolderMayRepeat", text: "a |; join a; a |; join a; a |; join a; a |"},
		{name: "Acquire/WaiterMayRepeat", text: "a | b c; join b; a | b c; join b; a | b c; join b; a | b c"},
		{name: "Acquire/TryIsGranted", text: "|; try a; a |; try a; a |"},
		{name: "Acquire/TryLeavesNothing", text: "a |; try b; a |; try b; a |; join c; a | c; try b; a | c; leave b; " +
			"a | c; leave a; c |; leave c; |"},
		{name: "Acquire/JoinsQueue", text: "a |; join B; a | B; join c; a | B c; join D; a | B c D"},
		{name: "Acquire/AfterNotAfterReportsOwnClaim", text: "a | b; join a late; a | b; join b late; a | b"},

		{name: "First/GoesToTheHead", text: "a | b c; join d first; a | d b c; join e first; a | e d b c; leave a; " +
			"e | d b c; leave e; d | b c"},
		{name: "First/WaiterKeepsItsPosition", text: "a | b; join c first; a | c b; join c first; a | c b; join c first; " +
			"a | c b; join b first; a | c b; join d first; a | d c b; join c first; a | d c b"},
		{name: "First/HolderIsNotJoinedAgain", text: "|; join a first; a |; join b; a | b; join a first; a | b; join a first; a | b"},
		{name: "First/HeavyOneHoldsUpTheQueue", limit: 3, text: "a b | c2; join d3 first; a b | d3 c2; join e; " +
			"a b | d3 c2 e; leave a; b | d3 c2 e; leave b; d3 | c2 e"},
		{name: "First/TryThatFitsIsGranted", limit: 3, text: "a2 | b3; try c2 first; a2 | b3; try d first; a2 d | b3"},
		{name: "First/AfterNotAfterJoinsNothing", text: "a | b; join c first late; a | b"},

		{name: "Queue/IsServedInOrder", text: "A | b C D e f; leave A; b | C D e f; leave b; C | D e f; leave C; D | e f; " +
			"leave D; e | f; leave e; f |; leave f; |"},
		{name: "Queue/ShowsTheNearestAhead", text: "a | b c d e f g h i j k l m; join b; .; join c; .; join d; .; join e; .; " +
			"join f; .; join g; .; join h; .; join i; .; join j; .; join k; .; join l; .; join m; .; try n; ."},
		{name: "Load/ShowsTheQueue", limit: 3, text: "a3 | b c2 d3 e f2 g3 h i2 j3 k l2 m3 n o2 p3 q r2 s3 t u2 v3 w x2 y3 z " +
			"A2 B3 C D2 E3 F G2 H3 I J2 K3 L M2 N3 O; try P; ."},
		{name: "Queue/WeightsNeverExceedTheLimit", limit: 5, text: "|; join a2; a2 |; join b2; a2 b2 |; leave a; b2 |; join c5; " +
			"b2 | c5; join d; b2 | c5 d; join e3; b2 | c5 d e3; leave b; c5 | d e3; leave c; d e3 |; join f; d e3 f |; " +
			"join g; d e3 f | g; join h4; d e3 f | g h4; leave d; e3 f g | h4; join i5; e3 f g | h4 i5; join j2; " +
			"e3 f g | h4 i5 j2; leave e; f g | h4 i5 j2; leave f; g h4 | i5 j2; join k; g h4 | i5 j2 k; leave g; " +
			"h4 | i5 j2 k; join l3; h4 | i5 j2 k l3; leave h; i5 | j2 k l3; leave i; j2 k | l3"},
		{name: "Expired/HolderIsDropped", text: "A |; expire A; .; join b naming; b |; leave A; ."},
		{name: "Expired/FirstWaiterIsGrantedNotTheCaller", text: "A | b; expire A; .; join c naming; b | c"},
		{name: "Expired/TryDropsThemToo", text: "A |; expire A; .; try b; .; try b naming; b |"},
		{name: "Expired/LateRequestStillSettles", text: "A | b; expire A; .; join c naming late; b |"},
		{name: "Expired/OnlyThoseNamed", limit: 2, text: "a B | c2; expire B; .; join d naming; a | c2 d"},

		{name: "Mismatch/Kind", text: "a |; mismatch b=other; .; join c; a | c; mismatch b; ."},
		{name: "Mismatch/FreeKeyTakesOver", text: "a |; leave a; |; join B2/4=other over; B2 |; mismatch c/1=mutex; .; expire B; .; " +
			"join d/1=mutex over naming; d |"},
		{name: "Mismatch/Limit", limit: 3, text: "a |; mismatch b/5; ."},

		{name: "Yield/IsShown", limit: 3, text: "a~ b | c2~; leave b; a c2 |; leave a; c2 |; join d; c2 d |"},
		{name: "Notice/YieldFromTheFirstWaiter", text: "a~ |; try B; .; join C; a | C; join C; .; join C; .; join D; a | C D; join D; .; " +
			"try B; .; join E first; a | E C D; join C; .; leave E; a | C D; join C; .; leave C; a | D; join D; .; join a; ."},
		{name: "Notice/YieldToEveryHolderThatYields", limit: 4, text: "a~ b~ C~ d |; join E~; a b C d | E; join f~; a b C d | E f"},
		{name: "Notice/GrantSaysWhetherToYield", text: "A | b~ c; leave A; b | c; leave b; c |; join d~; c | d; leave c; d | // " +
			"A | b~; expire A; .; join c naming; b | c"},
		{name: "Notice/GrantByAnyCommand", limit: 3, text: "a2 | b3 c; leave b; a2 c | // a2 | b3 c; leave a; b3 | c; leave b; c | // " +
			"a2 | B3 c; expire B; .; try d naming; a2 c | // a2 | B3 c; expire B; .; join d naming; a2 c | d // " +
			"a2 | B3 c; expire B; .; join d naming late; a2 c |"},
		{name: "Notice/SeveralGrantsOfOneCommand", limit: 4, text: "A4 | b C d2 e4; leave A; b C d2 | e4; leave d; b C | e4; leave b; " +
			"C | e4; leave C; e4 |"},
		{name: "Notice/OnlyOfWhatTheCommandDid", text: "A | b c d; leave A; b | c d; wait; .; leave A; .; keep A; .; seal A 1; .; join b; .; " +
			"join c; .; join d; .; join d naming; .; join E late; .; try F; .; join g; b | c d g; leave d; b | c g; publish b; .; resize 1; ."},
		{name: "Notice/OwnGrantIsInTheReply", limit: 2, text: "A2 | b c; expire A; .; join c naming; b c |; leave b; c |; join d; c d |"},

		{name: "Queue/LightDoesNotOvertakeHeavy", limit: 3, text: "a2 | b3 c; join c; a2 | b3 c; join c; a2 | b3 c; " +
			"leave a; b3 | c; leave b; c |"},
		{name: "Queue/TryDoesNotOvertake", limit: 3, text: "a2 | b3; try c; a2 | b3"},
		{name: "Queue/WhenTheHeavyHeadLeavesTheNextAreGranted", limit: 3, text: "a2 | b3 c d; leave b; a2 c | d"},

		{name: "Release/HolderGrantsNext", text: "a | b c; leave a; b | c"},
		{name: "Release/OneOfSeveralHolders", limit: 3, text: "a b c | d; leave b; a c d |"},
		{name: "Release/FromTheQueue", text: "a | b c d; leave c; a | b d; leave b; a | d; leave d; a |; leave a; |"},
		{name: "Release/AbsentIsNoError", text: "|; leave a; | // a |; leave a; |; leave a; |; leave a; |; leave b; |"},
		{name: "Release/FindsByIDAlone", text: "a | b; leave b by id; a |; leave a by id; |"},
		{name: "Release/RepeatedOrLateNeverFreesNewerHold_B28", text: "a |; leave a; |; join b; b |; join c; b | c; leave a; .; " +
			"keep a; .; leave a; .; keep a; .; leave c; b |; leave b; |; join D; D |; join E; D | E; leave a; .; keep a; .; " +
			"leave a; .; keep a; ."},
		{name: "Notice/GrantByRelease", text: "A | b c; leave A; b | c; leave b; c |; leave c; |; join D; D |; join e; D | e; " +
			"leave D; e |; leave e; |; join F; F |; join g; F | g; leave F; g |"},
		{name: "Token/LastOneStaysReadable", text: "a |; leave a; |"},
		{name: "Term/OnlyGrantsCount", kind: driver.KindElection, text: "|; join a late; |; join b; b |; join c; b | c; join b; .; " +
			"join c; .; try d; .; join b; .; join c; .; try d; .; leave c; b |; keep b; .; publish b; ."},

		{name: "Keep/FromTheQueueReleases", text: "a | b c; keep b; a | c; leave a; c |"},
		{name: "Term/ZeroOfOtherKinds", text: "|; join a; a |; leave a; |; join b; b |; leave b; |; join c=election over; c |; leave c; |; " +
			"join d=mutex over; d |; leave d; |; join e=election over; e |"},
		{name: "Keep/ReleaseEndsIt", text: "a |; keep a; .; join b; a | b; leave a; b |"},
		{name: "Notice/KeepWakesTheFirstWaiter", text: "A | b c d; keep A; .; keep A; .; keep b; A | c d; keep A sooner; . // a |; keep a; ."},
		{name: "Keep/AbsentIsNoError", text: "|; keep a; | // a |; leave a; |; keep a; |; keep b; |; join c; c |; keep a; c |"},

		{name: "Replace/GrantsTheFirstWaiter", text: "a | b; c for a; b | c; leave b; c |; leave c; |"},
		{name: "Replace/GrantsItselfIfNobodyWaits", text: "a |; b for a; b |; c for b; c |; d for c; d |; leave d; |"},
		{name: "Replace/JoinsBehindAll", text: "a | b c d e f g h i j k l; m for a; b | c d e f g h i j k l m"},
		{name: "Replace/LateOnlyReleases", text: "a |; b for a late; | // a | b; c for a late; b |; leave b; |"},
		{name: "Replace/MayRepeat", text: "a | b; c for a; b | c; c for a; b | c; c for a; b | c; leave b; c |; c for a; " +
			"c |; leave c; |"},
		{name: "Replace/OfAReleasedClaim", text: "a |; leave a; |; join b; b |; c for a; b | c; leave c; b |; leave b; |"},

		{name: "Successor/GrantedInTheSameCommand", kind: driver.KindElection, text: "a | b c d e; publish a; " +
			"a | b c d e; leave a to d; d | b c e; leave d; b | c e"},
		{name: "Successor/FirstInTheQueue", kind: driver.KindElection, text: "a | b c; leave a to b; b | c; leave b to c; c |"},
		{name: "Successor/NotWaiting", kind: driver.KindElection, text: "a | b c d; publish a; a | b c d; leave c; " +
			"a | b d; leave a to c; a | b d; leave a to a; a | b d; leave a to x; a | b d; leave a; b | d"},
		{name: "Successor/OnlyFromAHolder", kind: driver.KindElection, text: "a | b c d; publish a; a | b c d; " +
			"leave b to d; a | b c d; leave x to d; a | b c d // |; leave a to b; |"},
		{name: "Successor/RepeatedOrLatePrefersNobody", kind: driver.KindElection, text: "a | b c d e; leave a to d; " +
			"d | b c e; leave a to d; d | b c e; leave a to e; d | b c e; leave a to d; d | b c e; leave d; b | c e; leave a to e; b | c e"},
		{name: "Successor/NotWithKeep", kind: driver.KindElection, text: "a | B C; publish a; .; keep a to C; ."},
		{name: "Notice/ReleaseGrantsTheSuccessor", kind: driver.KindElection, text: "A | B c d; publish A; .; leave A to d; " +
			"d | B c; leave d; B | c; leave B to c; c |"},
		{name: "Successor/FitsOrWaitsAtTheHead", limit: 3, text: "a b2 | c d3; leave a to d; b2 | d3 c; leave b; d3 | c"},

		{name: "Resize/GrowsAndGrants", limit: 2, text: "a2 | b c d2 e; resize 5; a2 b c | d2 e; resize 7; a2 b c d2 e |"},
		{name: "Resize/ShrinksAndBlocksUntilTheyFit", limit: 5, text: "a2 b2 c |; resize 2; a2 b2 c |; join d; " +
			"a2 b2 c | d; leave a; b2 c | d; try e; b2 c | d; leave c; b2 | d; try f; b2 | d; leave b; d |"},
		{name: "Resize/HolderMayRepeat", limit: 4, text: "a4 | b; resize 2; a4 | b; join a; a4 | b; join b; a4 | b; " +
			"join a; a4 | b; leave a; b |"},
		{name: "Resize/WaitingWeightTooGreatIsRefused", limit: 4, text: "a4 | b c3; resize 2; a4 | b c3; resize 1; " +
			"a4 | b c3; resize 3; a4 | b c3; leave c; a4 | b; resize 1; a4 | b; leave a; b |"},
		{name: "Resize/RepeatedChangesNothing", limit: 2, text: "a b | c2; publish a; a b | c2; resize 3; a b | c2; " +
			"resize 3; a b | c2; resize 3; a b | c2"},

		{name: "Resize/FormerLimitIsKept", limit: 2, text: "|; join a; a |; leave a; |; resize 1; .; join b; b |; leave b; |; join c; c |; " +
			"leave c; |; join d/2; d |; leave d; | // |; join a/1=election over; a |; leave a; |; join b=mutex over; b |; leave b; |; " +
			"join c; c |; leave c; |; join d=election over; d |"},
		{name: "Resize/OtherKindHadNoFormerLimits", limit: 2, text: "a |; resize 3; .; leave a; |; join b/2=other over; b |; mismatch c/3; .; " +
			"leave b; |; join d/2=mutex over; d |; mismatch e/3; ."},

		// A claim may still have a limit that the key had before a Resize.
		{name: "Resize/FormerLimitCountsAsThePresent", limit: 2, text: "a2 |; resize 4; .; join b/2; a2 b |; join c/4; " +
			"a2 b c |; join d2/2; a2 b c | d2; try e/2; .; leave a; b c d2 |"},
		{name: "Resize/FormerLimitCountsOnAFreeKey", limit: 2, text: "a |; resize 3; .; leave a; |; join b/2; b |; join c/2; b c |; " +
			"join d/3; b c d |; try e/2; .; leave b; c d |; leave c; d |; leave d; |; join f/2; f |; join g/2; f g |; " +
			"join h/3; f g h |; try i/2; .; leave f; g h |; leave g; h |; leave h; |"},
		{name: "Resize/FromCountsToo", text: "|; resize 3; .; join a/1; a |; join b/3; a b |; join c/1; a b c |; mismatch x/2; .; " +
			"resize 3 from 2; .; join d/2; a b c | d; join e/1; a b c | d e; leave b; a c d | e"},
		{name: "Resize/UnknownLimitIsMismatch", limit: 2, text: "a2 |; resize 3; .; mismatch x/7; .; join b2/2; a2 | b2; mismatch y/1; ."},
		{name: "Resize/UnknownLimitTakesAFreeKeyOver", limit: 2, text: "a |; resize 3; .; leave a; |; join b/7 over; b |; " +
			"mismatch x/2; .; mismatch y/3; ."},
		{name: "Resize/WeightAboveThePresentLimitIsMismatch", limit: 4, text: "a |; resize 2; .; mismatch b3/4; .; join c2/4; " +
			"a | c2; leave a; c2 |; leave c; |; mismatch b; ."},
		{name: "Resize/AndBack", limit: 3, text: "a3 |; resize 5; .; resize 3; .; join b/5; a3 | b; join c/3; a3 | b c; leave a; " +
			"b c |; mismatch d4/5; .; resize 5; .; join d; b c | d4"},
		{name: "Resize/EightFormerLimitsAreKnown", text: "a |; resize 2; .; resize 3; .; resize 4; .; resize 5; .; resize 6; .; " +
			"resize 7; .; resize 8; .; resize 9; .; join b/1; a b |; join c/2; a b c |; join d/3; a b c d |; join e/4; a b c d e |; " +
			"join f/5; a b c d e f |; join g/6; a b c d e f g |; join h/7; a b c d e f g h |; join i/8; a b c d e f g h i |; try j/1; ."},

		{name: "Seal/NotHeld", text: "|; seal x 1; | // a | b c; seal x 1; .; seal b 1; a | c; leave a; c |; seal a 1; ."},
		{name: "Seal/DropsTheQueue", text: "a | b c d e f g h i j k l m; seal a 1; |; join b; .; leave b; .; join c; .; leave c; .; " +
			"join d; .; leave d; .; join e; .; leave e; .; join f; .; leave f; .; join g; .; leave g; .; join h; .; leave h; .; " +
			"join i; .; leave i; .; join j; .; leave j; .; join k; .; leave k; .; join l; .; leave l; .; join m; .; leave m; ."},

		{name: "Tick/LaterOnesAreGranted", kind: driver.KindPeriodic, text: "a:1 |; seal a 1; |; join b:2; b |; seal b 2; |; " +
			"join c:5; c |; seal c 5; |; join d:1125899906842624; d |; seal d 1125899906842624; |; join e:1125899906842625; e |"},
		{name: "Tick/EarlierOnesAreServedFirst", kind: driver.KindPeriodic, text: "a:5 |; join b:5; a | b; join c:7; a | b c; " +
			"join d:4; a | d b c; join e:6; a | d b e c; join f:5; a | d b f e c; join g:1125899906842624; a | d b f e c g; " +
			"join h:7; a | d b f e c h g; leave a; d | b f e c h g; leave d; b | f e c h g; leave b; f | e c h g; leave f; " +
			"e | c h g; leave e; c | h g; leave c; h | g; leave h; g |; leave g; |"},
		{name: "Tick/SealDropsThoseThatAreOver", kind: driver.KindPeriodic, text: "a:5 | b:4 c:5 d:5 e:6 f:7 g:8; seal a 5; " +
			"e | f g; seal e 7; g |; leave b; .; join b; .; leave c; .; join c; .; leave d; .; join d; .; leave e; .; join e; .; " +
			"leave f; .; join f; ."},
		{name: "Tick/SealedKeyKeepsItsKindAndLimit", kind: driver.KindPeriodic, text: "a:5 |; seal a 5; |; mismatch b:5=once; .; " +
			"mismatch c:6=once; .; mismatch d/2:6; ."},
		{name: "Tick/RanksCandidates", kind: driver.KindElection, text: "a:5 |; join b:5; a | b; join c:7; a | b c; join D:3; a | D b c; " +
			"join e:5; a | D b e c; try f:1; .; leave a; D | b e c; join g:5; D | b e g c; join D:3; .; leave D; b | e g c; leave b to g; " +
			"g | e c; leave g; e | c"},
		{name: "Tick/RunThatFailsIsFollowed", kind: driver.KindPeriodic, text: "a:4 |; seal a 4; |; join b:5; b |; join c:5; " +
			"b | c; join d:4; .; leave b; c |; seal c 5; |"},

		{name: "Load/UnusedKeyIsZero", text: "|; wait; .; wait; ."},
		{name: "Load/AsAcquired_B25", text: "|; join a!; a |; join a; .; try a; .; extend a; .; join a; ."},
		{name: "Token/GrowsOverEveryHandOff_B08", text: "|; join a; a |; leave a; |; join b; b |; join c; b | c; leave b; c |; " +
			"leave c; |; join D; D |; expire D; .; join e naming; e |; leave e; |; join f?; f |; extend f; .; lapse f; .; join g; g |; " +
			"leave g; |; join h!; h |; extend h; .; join i; h | i; leave h; i |; leave i; |; try j; j |; leave j; |; join k; k |; l for k; l |"},
		{name: "Term/CountsEveryGrant", kind: driver.KindElection, text: "|; join a; a |; join b; a | b; leave a; b |; leave b; |; " +
			"try c; c |; leave c; |; join D; D |; expire D; .; join e? naming; e |; extend e; .; lapse e; .; try f; f |; leave f; |; " +
			"join g; g |; h for g; h |; leave h; | // a | b! c; leave a; b | c; extend b; .; leave b; c |"},
		{name: "Term/CountsEachOfSeveralGrants", kind: driver.KindElection, limit: 3, text: "|; join a3; a |; join b; a | b; join c; a | b c; " +
			"join d; a | b c d; leave a; b c d |"},
		{name: "Notice/GrantCarriesItsTerm", kind: driver.KindElection, text: "|; join A; A |; join b; A | b; leave A; b |; leave b; |; " +
			"join C; C |; join d; C | d; leave C; d |; leave d; |; join E=mutex over; E |; join f=mutex; E | f; leave E; f |"},

		{name: "Discard/FromTheQueue", text: "a |; join b; a | b; leave b; a |; join c; a | c; leave c; a |; join b again; a | b; " +
			"join c again; a | b c; discard c b; a |"},
		{name: "Discard/OfWhatIsGoneChangesNothing", text: "a |; leave a; |; join b; b |; join c; b | c; discard a x; . // |; discard a; ."},
		{name: "Discard/LeavesWhatWasKept", text: "a |; keep a; .; discard a; . // a! |; extend a; .; discard a; ."},

		{name: "Early/TheNextIsLetIn", text: "a |; leave a early; ? |; join b; b |; leave b early; ? |; join c; c |; leave c early; ? |; " +
			"join D; D |"},
		{name: "Early/AHeartbeatSaysWhenCommitted", text: "a |; leave a early; |; join b; b |; leave b early; |; join c; c |; leave c early; |"},
		{name: "Early/RepeatedOrLateChangesNothing", text: "a |; leave a early; ? |; join b; b |; leave a early; .; leave a early; ."},
		{name: "Early/CommittedIfSomebodyWaits", limit: 2, text: "a | b2; leave a early; b | // a2 | B2; leave a early; B |"},
		{name: "Early/CommittedIfObserved", text: "a |; observe; .; leave a early; | // |; observe; .; join a; a |; leave a early; |"},
		{name: "Early/CommittedWithOptions", text: "a |; keep a early; . // a |; seal a 1 early; | // a | b c; leave a to c early; c | b"},

		{name: "Forget/SealGoesAndTokensGrowOn", kind: driver.KindOnce, text: "|; forget; .; join a; a |; leave a; |; join b; b |; leave b; |; " +
			"join c; c |; leave c; |; join d; d |; leave d; |; join e; e |; leave e; |; join f; f |; seal f 1; |; forget; .; forget; .; " +
			"seal f 1; .; join g; g |; seal g 1; |; forget; .; seal g 1; .; join h; h |"},
		{name: "Forget/TermsCountFromOne", kind: driver.KindElection, text: "|; join a; a |; leave a; |; join b; b |; leave b; |; forget; .; " +
			"join c; c |; leave c; |; join d; d |; leave d; |; forget; ."},
		{name: "Forget/FormerLimitsAreUnknown", limit: 2, text: "a |; resize 3; .; leave a; |; forget; .; join b/2 over; b |; mismatch c/3; ."},
		{name: "Forget/KeyInUseStays", kind: driver.KindElection, text: "a |; publish a; .; forget; .; join b; a | b; forget; .; " +
			"leave a; b |; forget; ."},
		{name: "Forget/HolderWhoseEndHasComeIsNone", kind: driver.KindElection, text: "a |; keep a; .; forget; . // " +
			"a |; keep a briefly; .; lapse a; .; forget; |"},
		{name: "Forget/OtherTokenForgetsNothing", kind: driver.KindOnce, text: "x |; leave x; |; join a; a |; seal a 1; |; forget x; .; " +
			"forget a; .; join b; b |; seal b 1; |; forget a; ."},
		{name: "Notice/ChangeByForget", kind: driver.KindElection, text: "|; observe; .; join a; a |; leave a; |; forget; ."},

		{name: "Release/FixedLeaseEndsAtOnce", text: "a! | b; leave a; b | // a! | b; extend a; .; leave a; b |"},
		{name: "Keep/RepeatingDoesNotProlong", text: "a |; keep a; .; wait; .; keep a; .; wait; .; keep a longer; .; join a; ."},
		{name: "Keep/ShorterOneShortens", text: "a |; keep a longer; .; keep a; ."},
		{name: "Keep/EarlierEndOfFixedLeaseStays", text: "a! |; extend a; .; wait; .; keep a longer; . // a! |; extend a; .; keep a sooner; ."},
		{name: "Lease/EndsThatLongAfterItsGrant", text: "a! |; extend a; ."},
		{name: "Lease/LivesWithItsSessionUntilItIsExtended", text: "|; join A!; A |; expire A; .; join b naming; b |; extend A; . // " +
			"|; try A!; A |; expire A; .; join b naming; b | // b | A!; leave b; A |; expire A; .; join c naming; c |; extend A; . // " +
			"B | a!; expire B; .; try c naming; a |"},
		{name: "Lease/LapsedIsShownUntilItIsDropped", text: "a? |; extend a; .; lapse a; .; join a late; |"},
		{name: "Lease/RepeatedAcquireDoesNotProlong", text: "a! |; extend a; .; wait; .; join a; .; try a; ."},
		{name: "Extend/MovesTheEnd_B25", text: "a! |; extend a; .; wait; .; extend a; ."},
		{name: "Extend/OfASecondGrant", text: "a? |; extend a; .; lapse a; .; join b; b |; leave b; |; join a again; a |; extend a late; .; extend a; ."},
		{name: "Extend/NeverShortens", text: "a! |; extend a; .; extend a shorter; .; extend a shorter; ."},
		{name: "Extend/NotHeld", text: "|; extend a!; . // a | b!; extend a; .; extend b; .; extend c!; .; leave a; b |; extend c with b; .; " +
			"leave b; |; extend b; ."},
		{name: "Extend/CopyMovesNothing", text: "a! |; extend a; .; wait; .; extend a once more; .; extend a; .; wait; .; extend a once more; .; " +
			"extend a before once more; .; wait; .; extend a; . // " +
			"a! |; extend a; .; extend a shorter; .; wait; .; extend a once more; . // a! |; extend a; .; keep a sooner; .; extend a once more; . // " +
			"|; join A!; A |; extend A; .; expire A; .; wait; .; join b naming; A | b; extend A once more; .; extend A; ."},
		{name: "Extend/NotAfterItsEnd", text: "a? |; extend a; .; lapse a; .; extend a once more; .; extend a; .; join b; b |; extend a; ."},

		{name: "Expired/WaitersAreDropped", text: "a | B C d E; expire B; .; join f naming; a | d f"},
		{name: "Expired/WaiterForFixedLeaseIsDropped", text: "a | B!; expire B; .; join c naming; a | c"},

		{name: "Publish/StaysWhileItsHolderHolds", text: "a! |; publish a; .; extend a; .; join a; .; join B; a | B; join c; a | B c; try d; .; " +
			"expire B; .; join c naming; a | c; leave c; a |; extend a; .; keep a sooner; ."},
		{name: "Publish/GoesWithItsHolder", text: "a |; publish a; .; join b; a | b; leave a; b |; join b; .; publish a; .; publish b; .; leave b; |; " +
			"publish b; .; join C; C |; join C; .; publish a; .; publish b; .; publish C; .; expire C; .; join d? naming; d |; publish C; .; " +
			"publish d; .; extend d; .; lapse d; .; join e; e |; join e; .; publish d; ."},
		{name: "Publish/NotHeld", text: "|; publish a; . // a | b; publish a; .; publish b; .; publish c; .; leave a; b |; publish a; .; " +
			"leave b; |; publish b; ."},
		{name: "Publish/NotAfterItsEnd", text: "a? |; extend a; .; lapse a; .; publish a; ."},
		{name: "Publish/LateOlderOneChangesNothing", text: "a |; publish a a 1; .; publish a b 2; .; publish a a 1; .; publish a b 2; .; " +
			"publish a c 12; .; publish a b 2; .; publish a d 9; .; publish a empty 13; .; publish a c 12; ."},
		{name: "Publish/EveryClaimCountsFromOne", text: "a | b; publish a first 1000; .; leave a; b |; publish b second 1; .; publish b again 999; .; " +
			"leave b; |; join c; c |; publish c third 1; ."},
		{name: "Publish/ByTheGrant", text: grantValues},
		{name: "Publish/ByTheGrantOfALeader", kind: driver.KindElection, text: grantValues},
		{name: "Publish/ByTheGrantOfEverySort", text: "a' | b' c'; d' for a; b | c d; leave b to d; d | c // " +
			"a!' | b!' c!'; d!' for a; b | c d; leave b to d; d | c // a~' | b~' c~'; d~' for a; b | c d; leave b to d; d | c"},
		{name: "Publish/ByTheGrantOfSeveral", limit: 3, text: "a3 | b' c' d; leave a; b c d |; leave c; b d |; publish d; .; leave d; b |; leave b; |"},

		{name: "Seal/NobodyJoinsAnyMore", limit: 2, text: "a |; seal a 1; |; join a; .; try a; .; join b2; .; try b; .; join C first; .; " +
			"try C first; .; join d!; .; join d; .; try e; ."},
		{name: "Seal/NotAfterItsEnd", text: "a? |; extend a; .; lapse a; .; publish a; .; seal a 1; | // " +
			"a |; keep a briefly; .; lapse a; .; seal a 1; |; join b; b |; seal a 1; .; seal b 1; |"},
		{name: "Seal/OtherKindIsMismatch", kind: driver.KindOnce, text: "a |; seal a 1; |; mismatch b=mutex; .; resize 2=mutex; ."},
		{name: "Seal/RepeatedOrLateDoesNothing", text: "x |; leave x; |; join a!; a |; join b; a | b; seal a 1; |; seal a 1; .; seal x 1; .; " +
			"seal b 1; .; leave a; .; leave x; .; leave b; .; keep a; .; keep x; .; keep b; .; publish a; .; publish x; .; publish b; .; " +
			"join a; .; join x; .; join b; .; extend a; .; seal a 1; ."},
		{name: "Seal/OtherHoldersDoNotChangeTheResult", limit: 2, text: "a b | c; seal b 1; a |; publish a; .; seal a 1; |"},
		{name: "Notice/SealWakesTheQueue", text: "a | b C d E f G h I j K l M n O p Q; leave f; a | b C d E G h I j K l M n O p Q; " +
			"seal a 1; |; seal a 1; . // a |; seal a 1; | // a? | B; extend a; .; lapse a; .; join B; B |; seal a 1; ."},

		{name: "Replace/OfAnySort", text: "a | b; c for a; b | c // a | b~; c for a; b | c // a | b!; c for a; b | c; extend b; . // " +
			"a~ | b; c~ for a; b | c // a~ | b~; c~ for a; b | c // a~ | b!; c~ for a; b | c; extend b; ."},
		{name: "Replace/OfALeaseOrAValue", text: "a! | b; publish a; .; c! for a; b | c // a! | b~; c! for a; b | c // a! | b!; publish a; .; extend a; .; c! for a; b | c; extend b; . // " +
			"a | b; publish a; .; c for a; b | c // a~ | b~; publish a; .; c~ for a; b | c // a!; c! for a; c"},
		{name: "Replace/OfAWriter", limit: 3, text: "a3 | b; c3 for a; b | c"},

		{name: "Resize/OtherKindIsMismatch", limit: 2, text: "a2 | b2; resize 3=other; .; leave a; b |; resize 3=other; .; leave b; |; " +
			"resize 3=other from 1; .; join c/1=other; c |"},
		{name: "Resize/ToAnotherKindForgetsFormerLimits", kind: driver.KindSemaphore, limit: 5, text: "|; resize 4; .; resize 3; .; " +
			"resize 7=rwmutex from 6; .; join a/7; a |; join b/6; a b |; mismatch c/5; .; mismatch d/4; .; mismatch e/3; ."},
		{name: "Notice/GrantByResize", text: "A | b c~ d; resize 3; A b c | d; resize 3; .; resize 4; A b c d |; resize 2; . // a | b c~; observe; .; resize 2; a b | c; resize 1; ."},

		{name: "Token/RoomBehindOneThatYields", text: yieldRoom},
		{name: "Token/RoomBehindOneThatYieldsAll", limit: 3, text: strings.NewReplacer("a~", "a3~", "c~", "c3~", "E~", "E3~", "g~", "g3~").Replace(yieldRoom)},
		{name: "Token/NoRoomBehindAPart", limit: 2, text: "|; join a~; a |; leave a; |; join b2; b |; leave b; |; join c~; c |; join d; c d |; " +
			"leave c; d |; leave d; |; join e2; e |"},

		{name: "Tick/OverForItselfAndEarlierOnes", kind: driver.KindPeriodic, text: "a:5 |; seal a 5; |; join b:5; .; try b; .; join c:4; .; " +
			"try c; .; join d:1; .; try d; .; join e; .; try e; .; leave b; .; leave e; .; join f:6; f |"},
		{name: "Tick/AnEarlierSealChangesNothing", kind: driver.KindPeriodic, limit: 3, text: "a:9 b:9 c:9 | d3:8; seal a 6; b c | d; seal b 5; c | d; " +
			"seal c 6; d |"},
		{name: "Tick/Forgotten", kind: driver.KindPeriodic, text: "a:5 |; seal a 5; |; join b:6; b |; leave b; |; forget a; .; forget; .; " +
			"join c:1; c |"},
		{name: "Notice/SealUpToATick", kind: driver.KindPeriodic, text: "a:5 |; join b:4; a | b; join C:5; a | b C; join d:6; a | b C d; " +
			"join E:7; a | b C d E; seal a 5; d | E; seal d 7; |"},
		{name: "Notice/GrantAfterALapsedLease", text: "A? | b; extend A; .; lapse A; .; try c; b |"},

		{name: "Notice/EveryChangeOfAnObservedKey", text: "|; observe; .; join a!; a |; publish a; .; publish a text; .; join B; a | B; join c; a | B c; " +
			"join d; a | B c d; leave c; a | B d; keep a; .; leave a; B | d; expire B; .; try e naming; d |; leave d; |; join f?; f |; extend f; .; " +
			"lapse f; .; try g; g |; resize 2; .; join h; g h |; seal h 1; g |"},
		{name: "Notice/ChangeOfAKeyThatIsObservedLate", text: "a |; observe; .; leave a; | // a | b c; observe; .; leave a; b | c // " +
			"a |; observe; .; publish a; . // a |; observe; .; join b; a | b // a | b; observe; .; keep a; . // a |; observe; .; seal a 1; | // " +
			"a |; observe; .; resize 2; ."},
		{name: "Notice/ObservingAKeyChangesNothing", kind: driver.KindElection, text: "a | b; publish a; .; observe; . // " +
			"|; observe; .; wait; .; join a; a |"},
	}
}

// grantValues are scripts of claims that have values. From the grant on, the key has the claim's value, until the claim
// publishes another one or its hold ends.
const grantValues = "|; join a'; a |; join a; .; join B'; a | B; join c; a | B c; join a; .; publish a text; .; publish a empty; .; leave a; B | c; " +
	"join B; .; publish B $h 1; .; leave B; c |; leave c; |; try D'; D |; join D; .; expire D; .; join e' naming; e |; publish e text; .; " +
	"leave e; |; join e again; e |; f' for e; f |"

// yieldRoom is a script in which claims follow others that yield.
const yieldRoom = "|; join a~; a |; leave a; |; join b; b |; leave b; |; join c~; c |; join d; c | d; leave c; d |; leave d; |; join E~; E |; " +
	"expire E; .; join f naming; f |; leave f; |; join g~?; g |; extend g; .; lapse g; .; join h; h |"

// A scriptRow is a case of one or more scripts.
type scriptRow struct {
	name  string
	kind  driver.Kind // default KindMutex
	limit int64       // default 1
	text  string
}

// scriptCases returns a case for each row of scripts.
func scriptCases() []conformanceCase {
	var cases []conformanceCase
	for _, row := range scripts() {
		kind, limit := cmp.Or(row.kind, driver.KindMutex), cmp.Or(row.limit, 1)
		cases = append(cases, conformanceCase{name: row.name, test: func(e *env) {
			for text := range strings.SplitSeq(row.text, "//") {
				e.script(kind, limit, text)
			}
		}})
	}
	return cases
}
