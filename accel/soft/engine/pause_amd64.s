// func pause()
TEXT ·pause(SB), 4, $0-0
	PAUSE
	RET
