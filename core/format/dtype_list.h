// What includes this says what ST_DTYPE(name, number, bits, rank) makes of each
// dtype. The numbers are those of st.h, one after another, and have no order. The
// rank is the place in the reference's order of alignment, from 0: writers sort
// tensors by it. A dtype that is added takes the next number, and a rank between
// others.
ST_DTYPE(BOOL, 1, 8, 0)
ST_DTYPE(F4, 2, 4, 1)
ST_DTYPE(F6_E2M3, 3, 6, 2)
ST_DTYPE(F6_E3M2, 4, 6, 3)
ST_DTYPE(U8, 5, 8, 4)
ST_DTYPE(I8, 6, 8, 5)
ST_DTYPE(F8_E5M2, 7, 8, 6)
ST_DTYPE(F8_E4M3, 8, 8, 7)
ST_DTYPE(F8_E8M0, 9, 8, 8)
ST_DTYPE(F8_E4M3FNUZ, 10, 8, 9)
ST_DTYPE(F8_E5M2FNUZ, 11, 8, 10)
ST_DTYPE(I16, 12, 16, 11)
ST_DTYPE(U16, 13, 16, 12)
ST_DTYPE(F16, 14, 16, 13)
ST_DTYPE(BF16, 15, 16, 14)
ST_DTYPE(I32, 16, 32, 15)
ST_DTYPE(U32, 17, 32, 16)
ST_DTYPE(F32, 18, 32, 17)
ST_DTYPE(C64, 19, 64, 18)
ST_DTYPE(F64, 20, 64, 19)
ST_DTYPE(I64, 21, 64, 20)
ST_DTYPE(U64, 22, 64, 21)
