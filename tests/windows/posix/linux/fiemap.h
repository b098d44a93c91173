#include "words.h"  // what there is of it
